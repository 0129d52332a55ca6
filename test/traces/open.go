package traces

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

//go:embed data/*.gz data/LICENSE-mooncake data/LICENSE-azure data/LICENSE-servegen data/README.md
var data embed.FS

// The embedded traces, by the names that Open knows.
const (
	MooncakeConversation = "mooncake-conversation"
	MooncakeSynthetic    = "mooncake-synthetic"
	AzureConversation    = "azure-conversation"
)

// Names lists the embedded traces.
func Names() []string {
	return []string{AzureConversation, MooncakeConversation, MooncakeSynthetic}
}

// embedded is the file behind an embedded trace's name, "" for any other name.
func embedded(name string) string {
	switch name {
	case MooncakeConversation:
		return "data/mooncake_conversation.jsonl.gz"
	case MooncakeSynthetic:
		return "data/mooncake_synthetic.jsonl.gz"
	case AzureConversation:
		return "data/azure_conversation_2023.csv.gz"
	}
	return ""
}

// Notice is where the embedded traces come from and their licences, as text for a person.
func Notice() string {
	text, err := data.ReadFile("data/README.md")
	if err != nil {
		panic(err) // the build embeds it
	}
	return string(text)
}

// OpenConfig says how Open's traces become requests.
type OpenConfig struct {
	Text Text
	Seed uint64
	// Spread is MooncakeConfig's. 0 means ConversationSpread for MooncakeConversation and none for anything else; below 0 means
	// none anywhere, for a test of bursts.
	Spread time.Duration
	// Azure adds shared prefixes to an Azure trace; its Text and Seed are taken from above.
	Azure AzureConfig
	// Pool is EventsConfig's.
	Pool string
}

// firstEventBytes is within how many bytes an event says its kind.
const firstEventBytes = 256

// isEvent reports whether a file that starts so holds events.
func isEvent(start []byte) bool {
	line, _, _ := bytes.Cut(start, []byte("\n"))
	return bytes.Contains(line, []byte(`"kind":"`))
}

// Trace is an open recorded trace. Close it when done; it belongs to one goroutine.
type Trace struct {
	Source
	Name    string
	closers []io.Closer
}

// Lost is how many events a recording says are missing in it, once its first request was read; 0 for other traces.
func (t *Trace) Lost() uint64 {
	if e, ok := t.Source.(*events); ok {
		return e.lost
	}
	return 0
}

// Close releases the trace's file.
func (t *Trace) Close() error {
	var errs []error
	for _, c := range slices.Backward(t.closers) {
		errs = append(errs, c.Close())
	}
	t.closers = nil
	return errors.Join(errs...)
}

// Open opens an embedded trace by its name, or a file by its path. A file holds Mooncake's JSON lines, events or Azure's CSV, plain or
// gzip'ed; which one is told from its first bytes.
func Open(name string, cfg OpenConfig) (*Trace, error) {
	t := &Trace{Name: name}
	var file io.ReadCloser
	var err error
	if path := embedded(name); path != "" {
		file, err = data.Open(path)
	} else {
		if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() { // a pipe would hold the reader, and can't be read again
			return nil, fmt.Errorf("open trace %s: it is no regular file", name)
		}
		file, err = os.Open(name)
		if errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("no trace named %q and no such file; the embedded ones are %s: %w", name, strings.Join(Names(), ", "), err)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open trace: %w", err)
	}
	t.closers = append(t.closers, file)
	if err := t.detect(bufio.NewReaderSize(file, readerBufBytes), cfg); err != nil {
		return nil, errors.Join(fmt.Errorf("open trace %s: %w", name, err), t.Close())
	}
	return t, nil
}

// firstBytes says why a file's first bytes can't be read.
func firstBytes(err error) error {
	if errors.Is(err, io.EOF) {
		return errors.New("it is empty")
	}
	return readFault(err)
}

func (t *Trace) detect(in *bufio.Reader, cfg OpenConfig) error {
	first, err := in.Peek(2)
	if len(first) == 0 {
		return firstBytes(err)
	}
	if bytes.Equal(first, []byte{0x1f, 0x8b}) {
		unzip, err := gzip.NewReader(in)
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return readFault(err)
		}
		t.closers = append(t.closers, unzip)
		in = bufio.NewReaderSize(unzip, readerBufBytes)
		if first, err = in.Peek(1); len(first) == 0 {
			return firstBytes(err)
		}
	}
	switch first[0] {
	case '{':
		if start, _ := in.Peek(firstEventBytes); isEvent(start) {
			t.Source = Events(in, EventsConfig{Text: cfg.Text, Pool: cfg.Pool})
			return nil
		}
		m := MooncakeConfig{Text: cfg.Text, Seed: cfg.Seed, Spread: cfg.Spread}
		if m.Spread == 0 && t.Name == MooncakeConversation {
			m.Spread = ConversationSpread
		}
		t.Source = Mooncake(in, m)
	case 'T':
		a := cfg.Azure
		a.Text, a.Seed = cfg.Text, cfg.Seed
		t.Source = Azure(in, a)
	default:
		return errors.New("neither JSON lines in Mooncake's format or of events nor CSV with Azure's header")
	}
	return nil
}
