package traces

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"time"
)

// SharedPrefixConfig describes groups of prompts below common system prompts: a group's prompts share their system text and
// each asks its own question. They arrive by a Poisson process, groups drawn at random.
type SharedPrefixConfig struct {
	Text           Text
	Seed           uint64
	Groups         int     // 0 means 64
	PromptsPer     int     // on average per group: Groups x PromptsPer requests in all; 0 means 16
	Rate           float64 // requests per second; 0 means 10
	ZipfExponent   float64 // of the groups' shares; 0 means equal shares
	SystemTokens   int     // 0 means 2,048
	QuestionTokens int     // 0 means 128
	OutputTokens   int     // 0 means 128
}

// SharedPrefix generates groups of prompts.
func SharedPrefix(cfg SharedPrefixConfig) (Source, error) {
	setDefault(&cfg.Groups, 64)
	setDefault(&cfg.PromptsPer, 16)
	setDefault(&cfg.Rate, 10)
	setDefault(&cfg.SystemTokens, 2048)
	setDefault(&cfg.QuestionTokens, 128)
	setDefault(&cfg.OutputTokens, 128)
	err := errors.Join(
		atLeast("Groups", cfg.Groups, 1), atLeast("PromptsPer", cfg.PromptsPer, 1), validRate(cfg.Rate),
		atLeast("SystemTokens", cfg.SystemTokens, 1), atLeast("QuestionTokens", cfg.QuestionTokens, 1),
		atLeast("OutputTokens", cfg.OutputTokens, 0),
	)
	if err != nil {
		return nil, fmt.Errorf("shared prefix: %w", err)
	}
	rank, err := newZipf(cfg.Groups, cfg.ZipfExponent)
	if err != nil {
		return nil, fmt.Errorf("shared prefix: %w", err)
	}
	rng := rand.New(rand.NewPCG(cfg.Seed, textID("shared prefix")))
	return &poisson{
		rng: rng, rate: cfg.Rate, total: cfg.Groups * cfg.PromptsPer, text: cfg.Text, output: cfg.OutputTokens,
		prompt: func(n uint64) []Message {
			group := uint64(rank.draw(rng))
			return []Message{
				{Role: "system", Parts: []Part{{ID: textID("group", cfg.Seed, group), Tokens: cfg.SystemTokens}}},
				{Role: "user", Parts: []Part{{ID: textID("question", cfg.Seed, n), Tokens: cfg.QuestionTokens}}},
			}
		},
	}, nil
}

// HotPrefixConfig describes requests of which a given share begins with one and the same prefix; the others begin with one of
// many cold prefixes. They arrive by a Poisson process.
type HotPrefixConfig struct {
	Text           Text
	Seed           uint64
	Requests       int     // how many; 0 means without end
	Rate           float64 // requests per second; 0 means 10
	Share          float64 // of the requests with the hot prefix, in [0, 1]
	Cold           int     // number of cold prefixes with equal shares; 0 means that each of the others is unique
	PrefixTokens   int     // of the hot and of each cold prefix; 0 means 4,096
	QuestionTokens int     // after the prefix; 0 means 128
	OutputTokens   int     // 0 means 128
}

// HotPrefix generates requests with one hot prefix.
func HotPrefix(cfg HotPrefixConfig) (Source, error) {
	setDefault(&cfg.Rate, 10)
	setDefault(&cfg.PrefixTokens, 4096)
	setDefault(&cfg.QuestionTokens, 128)
	setDefault(&cfg.OutputTokens, 128)
	err := errors.Join(
		atLeast("Requests", cfg.Requests, 0), validRate(cfg.Rate), atLeast("Cold", cfg.Cold, 0),
		atLeast("PrefixTokens", cfg.PrefixTokens, 1), atLeast("QuestionTokens", cfg.QuestionTokens, 1),
		atLeast("OutputTokens", cfg.OutputTokens, 0),
	)
	if !(cfg.Share >= 0 && cfg.Share <= 1) {
		err = errors.Join(err, fmt.Errorf("share is %v, want 0 to 1", cfg.Share))
	}
	if err != nil {
		return nil, fmt.Errorf("hot prefix: %w", err)
	}
	rng := rand.New(rand.NewPCG(cfg.Seed, textID("hot prefix")))
	return &poisson{
		rng: rng, rate: cfg.Rate, total: cfg.Requests, text: cfg.Text, output: cfg.OutputTokens,
		prompt: func(n uint64) []Message {
			prefix := textID("cold", cfg.Seed, n)
			if cfg.Cold > 0 {
				prefix = textID("cold", cfg.Seed, uint64(rng.IntN(cfg.Cold)))
			}
			if rng.Float64() < cfg.Share {
				prefix = textID("hot", cfg.Seed)
			}
			return []Message{
				{Role: "system", Parts: []Part{{ID: prefix, Tokens: cfg.PrefixTokens}}},
				{Role: "user", Parts: []Part{{ID: textID("question", cfg.Seed, n), Tokens: cfg.QuestionTokens}}},
			}
		},
	}, nil
}

// UniqueConfig describes requests that share nothing. They arrive by a Poisson process.
type UniqueConfig struct {
	Text         Text
	Seed         uint64
	Requests     int     // how many; 0 means without end
	Rate         float64 // requests per second; 0 means 10
	InputTokens  Range   // zero means 1,024
	OutputTokens int     // 0 means 128
}

// Unique generates prompts without reuse.
func Unique(cfg UniqueConfig) (Source, error) {
	setDefault(&cfg.Rate, 10)
	setDefault(&cfg.InputTokens, Range{1024, 1024})
	setDefault(&cfg.OutputTokens, 128)
	err := errors.Join(
		atLeast("Requests", cfg.Requests, 0), validRate(cfg.Rate),
		cfg.InputTokens.validate("InputTokens", 1), atLeast("OutputTokens", cfg.OutputTokens, 0),
	)
	if err != nil {
		return nil, fmt.Errorf("unique: %w", err)
	}
	rng := rand.New(rand.NewPCG(cfg.Seed, textID("unique")))
	return &poisson{
		rng: rng, rate: cfg.Rate, total: cfg.Requests, text: cfg.Text, output: cfg.OutputTokens,
		prompt: func(n uint64) []Message {
			return []Message{{Role: "user", Parts: []Part{{ID: textID("unique", cfg.Seed, n), Tokens: cfg.InputTokens.draw(rng)}}}}
		},
	}, nil
}

// poisson is the arrival process below the generators of independent requests.
type poisson struct {
	rng    *rand.Rand
	rate   float64
	total  int // 0 means without end
	text   Text
	output int
	prompt func(n uint64) []Message // of the n-th request, from 0

	n  uint64
	at time.Duration
}

func (p *poisson) Next() (*Request, error) {
	if p.total > 0 && p.n >= uint64(p.total) {
		return nil, io.EOF
	}
	p.at += pause(p.rng, p.rate)
	r := &Request{At: p.at, OutputTokens: p.output, Messages: p.prompt(p.n), Text: p.text}
	for _, m := range r.Messages {
		for _, part := range m.Parts {
			r.InputTokens += part.Tokens
		}
	}
	p.n++
	return r, nil
}

// pause draws the time to the next arrival of a Poisson process.
func pause(rng *rand.Rand, rate float64) time.Duration {
	return time.Duration(rng.ExpFloat64() / rate * float64(time.Second))
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func atLeast[T cmp.Ordered](name string, value, least T) error {
	if value < least {
		return fmt.Errorf("%s is %v, want at least %v", name, value, least)
	}
	return nil
}

func validRate(rate float64) error {
	if !(rate > 0) || math.IsInf(rate, 0) {
		return fmt.Errorf("rate is %v, want above 0", rate)
	}
	return nil
}
