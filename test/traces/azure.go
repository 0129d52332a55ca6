package traces

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"time"
)

// AzureConfig says how an Azure LLM inference trace becomes requests. The trace has no prefix information: with Prefixes 0 every
// prompt is unique, otherwise each begins with one of so many made-up shared prefixes, drawn by a Zipf law, and any figure made
// with it must say so.
type AzureConfig struct {
	Text         Text
	Prefixes     int     // number of shared prefixes; 0 means none
	PrefixTokens int     // length of a prefix; a shorter prompt is wholly prefix but its last token. 0 means 512
	ZipfExponent float64 // share of the k-th prefix falls as k to the minus this; 0 means 1.1
	Seed         uint64  // draws the prefixes
}

// Azure reads a trace in the format of Azure's public LLM inference data: CSV with the header TIMESTAMP, ContextTokens,
// GeneratedTokens. Time starts at the first row; rows must be in order.
func Azure(r io.Reader, cfg AzureConfig) Source {
	if cfg.PrefixTokens == 0 {
		cfg.PrefixTokens = 512
	}
	if cfg.ZipfExponent == 0 {
		cfg.ZipfExponent = 1.1
	}
	in := csv.NewReader(r)
	in.ReuseRecord = true
	in.FieldsPerRecord = 3
	return &azure{in: in, cfg: cfg}
}

type azure struct {
	in     *csv.Reader
	cfg    AzureConfig
	rank   *zipf // nil until the first row, or without prefixes
	rng    *rand.Rand
	row    int
	origin time.Time
	latest time.Duration
}

const azureTime = "2006-01-02 15:04:05.9999999"

func (a *azure) Next() (*Request, error) {
	if a.rng == nil {
		if err := a.start(); err != nil {
			return nil, err
		}
	}
	record, err := a.in.Read()
	if errors.Is(err, io.EOF) {
		return nil, io.EOF
	}
	a.row++
	switch {
	case errors.Is(err, csv.ErrFieldCount):
		return nil, fmt.Errorf("row %d: it has not three fields: it may be cut off", a.row)
	case err != nil:
		return nil, fmt.Errorf("row %d: %w", a.row, readFault(err))
	}
	r, err := a.parse(record)
	if err != nil {
		return nil, fmt.Errorf("row %d: %w", a.row, err)
	}
	return r, nil
}

func (a *azure) start() error {
	header, err := a.in.Read()
	if err != nil {
		if errors.Is(err, io.EOF) {
			return errors.New("the trace has no header")
		}
		return fmt.Errorf("header: %w", err)
	}
	if header[0] != "TIMESTAMP" || header[1] != "ContextTokens" || header[2] != "GeneratedTokens" {
		return fmt.Errorf("header is %q, want TIMESTAMP,ContextTokens,GeneratedTokens", header)
	}
	if a.cfg.Prefixes > 0 {
		if a.rank, err = newZipf(a.cfg.Prefixes, a.cfg.ZipfExponent); err != nil {
			return err
		}
	}
	a.rng = rand.New(rand.NewPCG(a.cfg.Seed, textID("azure prefix")))
	return nil
}

func (a *azure) parse(record []string) (*Request, error) {
	when, err := time.Parse(azureTime, record[0])
	if err != nil {
		return nil, fmt.Errorf("TIMESTAMP %.40q is no time such as 2023-11-16 18:15:46", record[0])
	}
	input, err := parseTokens(record[1], 1)
	if err != nil {
		return nil, fmt.Errorf("ContextTokens: %w", err)
	}
	output, err := parseTokens(record[2], 0)
	if err != nil {
		return nil, fmt.Errorf("GeneratedTokens: %w", err)
	}
	if a.row == 1 {
		a.origin = when
	}
	at := when.Sub(a.origin)
	if at < a.latest {
		return nil, fmt.Errorf("time %s is before the row above", record[0])
	}
	a.latest = at
	own := Part{ID: textID("azure", uint64(a.row)), Tokens: input}
	parts := []Part{own}
	if a.rank != nil {
		shared := Part{
			ID:     textID("azure prefix", uint64(a.rank.draw(a.rng))),
			Tokens: min(a.cfg.PrefixTokens, input-1),
		}
		own.Tokens -= shared.Tokens
		parts = []Part{shared, own}
	}
	return &Request{
		At: at, InputTokens: input, OutputTokens: output,
		Messages: []Message{{Role: "user", Parts: parts}},
		Text:     a.cfg.Text,
	}, nil
}

func parseTokens(s string, least int) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0, fmt.Errorf("%.40q is no whole number", s)
	}
	if n < least || n > maxTokens {
		return 0, fmt.Errorf("%d is out of range", n)
	}
	return n, nil
}
