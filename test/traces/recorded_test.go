package traces

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

func open(t *testing.T, name string, cfg OpenConfig) *Trace {
	t.Helper()
	trace, err := Open(name, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := trace.Close(); err != nil {
			t.Error(err)
		}
	})
	return trace
}

func readAll(t *testing.T, src Source) []*Request {
	t.Helper()
	var all []*Request
	for {
		r, err := src.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
}

func TestEmbeddedTracesHaveTheirPublishedFigures(t *testing.T) {
	f := func(name string, requests int, duration time.Duration, meanInput, meanOutput, idealHit float64) {
		t.Helper()
		got, err := Summarize(open(t, name, OpenConfig{Spread: -1}))
		if err != nil {
			t.Fatal(err)
		}
		if got.Requests != requests || got.Duration != duration {
			t.Errorf("%s: %d requests in %v, want %d in %v", name, got.Requests, got.Duration, requests, duration)
		}
		n := float64(got.Requests)
		if in, out := float64(got.InputTokens)/n, float64(got.OutputTokens)/n; math.Abs(in-meanInput) > 1 || math.Abs(out-meanOutput) > 1 {
			t.Errorf("%s: mean input %.1f and output %.1f, want %.1f and %.1f", name, in, out, meanInput, meanOutput)
		}
		if math.Abs(got.IdealHit-idealHit) > 0.0005 {
			t.Errorf("%s: ideal hit %.4f, want %.4f", name, got.IdealHit, idealHit)
		}
	}
	f(MooncakeConversation, 12031, 3536999*time.Millisecond, 12035.1, 342.6, 0.3664)
	f(MooncakeSynthetic, 3993, 1022025*time.Millisecond, 15325.5, 149.1, 0.6396)
	f(AzureConversation, 19366, 3501721937*time.Microsecond, 1154.7, 211.1, 0)
}

func TestConversationTraceSharesItsFirstBlock(t *testing.T) {
	for _, r := range readAll(t, open(t, MooncakeConversation, OpenConfig{})) {
		parts := r.Messages[0].Parts
		if parts[0].ID != 0 {
			t.Fatalf("first block is %d, want 0", parts[0].ID)
		}
		if want := (r.InputTokens + 511) / 512; len(parts) != want {
			t.Fatalf("%d blocks for %d tokens, want %d", len(parts), r.InputTokens, want)
		}
		sum := 0
		for _, p := range parts {
			sum += p.Tokens
		}
		if sum != r.InputTokens {
			t.Fatalf("blocks sum to %d tokens, want %d", sum, r.InputTokens)
		}
	}
}

func TestSpreadingKeepsOrderAndBuckets(t *testing.T) {
	raw := readAll(t, open(t, MooncakeConversation, OpenConfig{Spread: -1}))
	spread := readAll(t, open(t, MooncakeConversation, OpenConfig{Seed: 7}))
	if len(raw) != len(spread) {
		t.Fatalf("%d requests spread from %d", len(spread), len(raw))
	}
	var last, sum time.Duration
	distinct := map[time.Duration]bool{}
	for i, r := range spread {
		moved := r.At - raw[i].At
		if moved < 0 || moved >= ConversationSpread {
			t.Fatalf("request %d moved by %v", i, moved)
		}
		if r.At < last {
			t.Fatalf("request %d is due at %v, before %v", i, r.At, last)
		}
		last = r.At
		sum += moved
		distinct[r.At] = true
		raw[i].At = r.At
		if !reflect.DeepEqual(raw[i], r) {
			t.Fatalf("spreading changed request %d beyond its time", i)
		}
	}
	if mean := sum / time.Duration(len(spread)); mean < 1450*time.Millisecond || mean > 1550*time.Millisecond {
		t.Errorf("mean shift is %v, want about half the bucket", mean)
	}
	if len(distinct) < len(spread)-10 {
		t.Errorf("%d distinct times for %d requests", len(distinct), len(spread))
	}
}

func TestSpreadingNeverPassesTheNextRecordedTime(t *testing.T) {
	row := "{\"timestamp\": %d, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": [1]}\n"
	trace := strings.Repeat(fmt.Sprintf(row, 0), 50) + strings.Repeat(fmt.Sprintf(row, 1000), 50)
	all := readAll(t, Mooncake(strings.NewReader(trace), MooncakeConfig{Spread: ConversationSpread}))
	for i, r := range all {
		low, high := time.Duration(0), time.Second
		if i >= 50 {
			low, high = time.Second, time.Second+ConversationSpread
		}
		if r.At < low || r.At >= high || i > 0 && r.At < all[i-1].At {
			t.Errorf("request %d is due at %v", i, r.At)
		}
	}
}

func TestReadingTwiceGivesTheSame(t *testing.T) {
	f := func(name string, cfg OpenConfig) {
		t.Helper()
		a := readAll(t, Head(open(t, name, cfg), 500))
		b := readAll(t, Head(open(t, name, cfg), 500))
		if !reflect.DeepEqual(a, b) {
			t.Errorf("%s: two readings differ", name)
		}
		cfg.Seed++
		if c := readAll(t, Head(open(t, name, cfg), 500)); reflect.DeepEqual(a, c) {
			t.Errorf("%s: another seed changes nothing", name)
		}
	}
	f(MooncakeConversation, OpenConfig{Seed: 1})
	f(AzureConversation, OpenConfig{Seed: 1, Azure: AzureConfig{Prefixes: 20}})
}

func TestAzurePrefixesFollowZipf(t *testing.T) {
	counts := map[uint64]int{}
	all := readAll(t, open(t, AzureConversation, OpenConfig{Azure: AzureConfig{Prefixes: 10, ZipfExponent: 1, PrefixTokens: 100}}))
	for _, r := range all {
		parts := r.Messages[0].Parts
		if parts[0].Tokens+parts[1].Tokens != r.InputTokens || parts[0].Tokens > 100 || parts[1].Tokens < 1 {
			t.Fatalf("parts %v of %d tokens", parts, r.InputTokens)
		}
		counts[parts[0].ID]++
	}
	top := counts[textID("azure prefix", 0)]
	if share := float64(top) / float64(len(all)); math.Abs(share-1/2.929) > 0.02 { // H(10) = 2.929
		t.Errorf("first prefix has a share of %.3f", share)
	}
	if len(counts) != 10 {
		t.Errorf("%d prefixes, want 10", len(counts))
	}
}

func TestFilesOfBothFormatsOpenByPath(t *testing.T) {
	mooncakeRows := "{\"timestamp\": 5, \"input_length\": 513, \"output_length\": 2, \"hash_ids\": [9, 10]}\n\n{\"timestamp\": 6, \"input_length\": 1, \"output_length\": 0, \"hash_ids\": [9]}"
	azureRows := "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n"
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	if _, err := w.Write([]byte(mooncakeRows)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	f := func(content string, at time.Duration, input int) {
		t.Helper()
		path := filepath.Join(t.TempDir(), "trace")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		all := readAll(t, open(t, path, OpenConfig{}))
		if len(all) != 2 || all[1].At != at || all[1].InputTokens != input {
			t.Errorf("read %d requests, last %+v", len(all), all[len(all)-1])
		}
	}
	f(mooncakeRows, 6*time.Millisecond, 1)
	f(zipped.String(), 6*time.Millisecond, 1)
	f(azureRows, 4314579*time.Microsecond, 396)
}

func TestBrokenTracesAreRefusedWithTheirLine(t *testing.T) {
	f := func(content, want string) {
		t.Helper()
		path := filepath.Join(t.TempDir(), "trace")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		trace, err := Open(path, OpenConfig{})
		if err == nil {
			defer trace.Close()
			for err == nil {
				_, err = trace.Next()
			}
		}
		if errors.Is(err, io.EOF) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: error is %v, want %q", content, err, want)
		}
	}
	good := `{"timestamp": 5, "input_length": 1, "output_length": 2, "hash_ids": [9]}` + "\n"
	f("", "it is empty")
	f("hello", "neither JSON lines")
	f(good+`{"timestamp": 5, "input_length": 1, "output_length": 2, "hash_ids": [9, 10]}`, "line 2: 2 hash ids for 1 input tokens, want 1")
	f(good+`{"timestamp": 4, "input_length": 1, "output_length": 2, "hash_ids": [9]}`, "before the row above")
	f(good+`{"timestamp": 6, "input_length": 0, "output_length": 2, "hash_ids": []}`, "input_length 0 is out of range")
	f(good+`{"timestamp": 6, "input_length": 1, "output_length": -2, "hash_ids": [1]}`, "output_length -2 is out of range")
	f(good+`{"timestamp": -6, "input_length": 1, "output_length": 2, "hash_ids": [1]}`, "timestamp -6 is out of range")
	f(good+`{"input_length": 1, "output_length": 2, "hash_ids": [1]}`, "no timestamp")
	f(good+`{"timestamp": 6, "input_len`, "line 2: it is cut off")
	f("TIMESTAMP,A,B\n", "header is")
	f("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,1,1\nyesterday,1,1\n", "row 2: TIMESTAMP \"yesterday\" is no time")
	f("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,0,1\n", "row 1: ContextTokens: 0 is out of range")
}

func TestUnknownTraceNamesTheKnownOnes(t *testing.T) {
	_, err := Open("no-such-trace", OpenConfig{})
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), MooncakeConversation) {
		t.Errorf("error is %v", err)
	}
}

func TestNoticeNamesEveryEmbeddedTrace(t *testing.T) {
	for _, name := range Names() {
		if !strings.Contains(Notice(), "`"+name+"`") {
			t.Errorf("the notice does not name %s", name)
		}
	}
}

func FuzzOpenedBytes(f *testing.F) {
	f.Add([]byte(`{"timestamp": 5, "input_length": 513, "output_length": 2, "hash_ids": [9, 10]}` + "\n" + `{"timestamp": 5e3, "input_length": 1, "output_length": 2, "hash_ids": [9]}`))
	f.Add([]byte(`{"timestamp": 1e300, "input_length": 1, "hash_ids": [18446744073709551615]}`))
	f.Add([]byte("TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:15:46.6805900,374,44\r\n2023-11-16 18:15:46.6805900,\"3\"\"74\",44"))
	f.Fuzz(func(t *testing.T, content []byte) {
		for _, src := range []Source{
			Mooncake(bytes.NewReader(content), MooncakeConfig{Spread: ConversationSpread}),
			Azure(bytes.NewReader(content), AzureConfig{Prefixes: 3}),
		} {
			var last time.Duration
			for {
				r, err := src.Next()
				if err != nil {
					if r != nil {
						t.Fatal("a request came with an error")
					}
					break
				}
				if r.At < last || r.InputTokens <= 0 || r.InputTokens > maxTokens || len(r.Messages) == 0 {
					t.Fatalf("bad request %+v after %v", r, last)
				}
				last = r.At
			}
		}
	})
}
