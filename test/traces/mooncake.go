package traces

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"time"
)

// MooncakeBlockTokens is the size of the blocks that a Mooncake trace's hash ids name.
const MooncakeBlockTokens = 512

// MooncakeConfig says how a Mooncake trace becomes requests.
type MooncakeConfig struct {
	// Text renders a block; its BytesPerToken sets the block's byte length (512 times it).
	Text Text
	// Spread is the width of the buckets the recorded times were rounded down to: the requests of one recorded instant are
	// spread uniformly over it, in their order, and never past the next recorded instant. 0 leaves the times as they are.
	// ConversationSpread fits the conversation trace.
	Spread time.Duration
	// Seed draws the spreading.
	Seed uint64
}

// ConversationSpread is the quantum of the Mooncake conversation trace's times.
const ConversationSpread = 3 * time.Second

// Bounds of a row and of a bucket, so that a broken file ends in an error and not in a full memory. The longest rows of the
// published traces have 191,378 tokens, their fullest bucket 28 rows.
const (
	maxLineBytes   = 8 << 20
	maxTokens      = 4 << 20
	maxBucketRows  = 1 << 16
	maxRecordedMS  = int64(1) << 43 // some 280 years, which is as much as a Duration holds
	readerBufBytes = 64 << 10
)

// Mooncake reads a trace in Mooncake's format: one JSON object per line with timestamp (ms), input_length and output_length
// (tokens) and hash_ids (one per 512-token block, the last one partial). Rows must be in order of time. The returned source
// holds one bucket of rows.
func Mooncake(r io.Reader, cfg MooncakeConfig) Source {
	return &mooncake{
		in:  bufio.NewReaderSize(r, readerBufBytes),
		cfg: cfg,
		rng: rand.New(rand.NewPCG(cfg.Seed, textID("mooncake spread"))),
	}
}

type mooncake struct {
	in     *bufio.Reader
	cfg    MooncakeConfig
	rng    *rand.Rand
	line   int
	buf    []byte        // a line longer than in's buffer
	ready  []*Request    // spread requests of the present bucket
	ahead  *Request      // first request of the next bucket
	latest time.Duration // recorded time of the last row read
	failed error         // returned once the ready ones are out
}

func (m *mooncake) Next() (*Request, error) {
	if len(m.ready) == 0 {
		m.fill()
	}
	if len(m.ready) == 0 {
		return nil, m.failed
	}
	r := m.ready[0]
	m.ready = m.ready[1:]
	return r, nil
}

// fill reads one bucket and spreads it.
func (m *mooncake) fill() {
	bucket := m.ready[:0]
	if m.ahead != nil {
		bucket = append(bucket, m.ahead)
		m.ahead = nil
	}
	for m.failed == nil {
		r, err := m.row()
		if err != nil {
			m.failed = err
			break
		}
		if len(bucket) > 0 && (m.cfg.Spread <= 0 || r.At != bucket[0].At) {
			m.ahead = r
			break
		}
		if len(bucket) == maxBucketRows {
			m.failed = fmt.Errorf("line %d: more than %d rows at one time", m.line, maxBucketRows)
			break
		}
		bucket = append(bucket, r)
	}
	if m.cfg.Spread > 0 {
		width := m.cfg.Spread
		if m.ahead != nil {
			width = min(width, m.ahead.At-bucket[0].At)
		}
		m.spread(bucket, width)
	}
	m.ready = bucket
}

func (m *mooncake) spread(bucket []*Request, width time.Duration) {
	if width <= 0 {
		return
	}
	offsets := make([]time.Duration, len(bucket))
	for i := range offsets {
		offsets[i] = time.Duration(m.rng.Int64N(int64(width)))
	}
	slices.Sort(offsets)
	for i, r := range bucket {
		r.At += offsets[i]
	}
}

// row reads the next row that is not blank.
func (m *mooncake) row() (*Request, error) {
	for {
		line, err := m.readLine()
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("line %d: %w", m.line, readFault(err))
		}
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			if err != nil {
				return nil, io.EOF
			}
			continue
		}
		r, perr := m.parse(line)
		if perr != nil {
			return nil, fmt.Errorf("line %d: %w", m.line, perr)
		}
		return r, nil
	}
}

var errLongLine = errors.New("line is longer than 8 MiB")

// readLine returns the next line, valid until the next call; with io.EOF it is the last one.
func (m *mooncake) readLine() ([]byte, error) {
	m.line++
	line, err := m.in.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		return line, err
	}
	m.buf = append(m.buf[:0], line...)
	for errors.Is(err, bufio.ErrBufferFull) {
		line, err = m.in.ReadSlice('\n')
		if len(m.buf)+len(line) > maxLineBytes {
			return nil, errLongLine
		}
		m.buf = append(m.buf, line...)
	}
	return m.buf, err
}

func (m *mooncake) parse(line []byte) (*Request, error) {
	var row struct {
		Timestamp *float64 `json:"timestamp"`
		Input     int      `json:"input_length"`
		Output    int      `json:"output_length"`
		Hashes    []uint64 `json:"hash_ids"`
	}
	if err := json.Unmarshal(line, &row); err != nil {
		return nil, jsonFault(err)
	}
	switch {
	case row.Timestamp == nil:
		return nil, errors.New("row has no timestamp")
	case *row.Timestamp < 0 || *row.Timestamp > float64(maxRecordedMS):
		return nil, fmt.Errorf("timestamp %v is out of range", *row.Timestamp)
	case row.Input <= 0 || row.Input > maxTokens:
		return nil, fmt.Errorf("input_length %d is out of range", row.Input)
	case row.Output < 0 || row.Output > maxTokens:
		return nil, fmt.Errorf("output_length %d is out of range", row.Output)
	}
	blocks := (row.Input + MooncakeBlockTokens - 1) / MooncakeBlockTokens
	if len(row.Hashes) != blocks {
		return nil, fmt.Errorf("%d hash ids for %d input tokens, want %d", len(row.Hashes), row.Input, blocks)
	}
	at := time.Duration(*row.Timestamp * float64(time.Millisecond))
	if at < m.latest {
		return nil, fmt.Errorf("timestamp %v ms is before the row above", *row.Timestamp)
	}
	m.latest = at
	parts := make([]Part, blocks)
	left := row.Input
	for i, id := range row.Hashes {
		parts[i] = Part{ID: id, Tokens: min(left, MooncakeBlockTokens)}
		left -= parts[i].Tokens
	}
	return &Request{
		At: at, InputTokens: row.Input, OutputTokens: row.Output,
		Messages: []Message{{Role: "user", Parts: parts}},
		Text:     m.cfg.Text,
	}, nil
}
