package replay

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

func TestPercentilesOfKnownArrays(t *testing.T) {
	f := func(values []float64, want Dist) {
		t.Helper()
		got := newDist(slices.Clone(values))
		for _, p := range [][2]float64{{got.Mean, want.Mean}, {got.P50, want.P50}, {got.P90, want.P90}, {got.P99, want.P99}, {got.Max, want.Max}} {
			if math.Abs(p[0]-p[1]) > 1e-9 {
				t.Fatalf("%v: %+v, want %+v", values, got, want)
			}
		}
		if got.Count != want.Count {
			t.Errorf("%v: count %d", values, got.Count)
		}
	}
	f(nil, Dist{})
	f([]float64{3}, Dist{Count: 1, Mean: 3, P50: 3, P90: 3, P99: 3, Max: 3})
	f([]float64{2, 1}, Dist{Count: 2, Mean: 1.5, P50: 1.5, P90: 1.9, P99: 1.99, Max: 2})
	hundred := make([]float64, 101)
	for i := range hundred {
		hundred[i] = float64(100 - i)
	}
	f(hundred, Dist{Count: 101, Mean: 50, P50: 50, P90: 90, P99: 99, Max: 100})
	f([]float64{15, 20, 35, 40, 50}, Dist{Count: 5, Mean: 32, P50: 35, P90: 46, P99: 49.6, Max: 50}) // numpy.percentile
}

func TestRunningMedianIsNearTheTrueOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Float64Range(1e-4, 1e4), 1, 200).Draw(t, "values")
		var h histogram
		for _, v := range values {
			h.add(v)
		}
		slices.Sort(values)
		want := values[(len(values)-1)/2]
		if got := h.median(); got < want/1.06 || got > want*1.06 {
			t.Fatalf("median is %v, want %v", got, want)
		}
	})
	var h histogram
	if h.median() != 0 {
		t.Error("median of nothing")
	}
	h.add(0)
	h.add(1e30)
}

// measured is a report with answers, hits and one kind of error.
func measured(t *testing.T) *Report {
	e := &engine{ttft: 200 * time.Millisecond, itl: 20 * time.Millisecond, cached: 40}
	return run(t, t.Context(), serve(t, e.ServeHTTP), Config{
		Source: every(time.Second, 20, 11), Name: "test trace", SLO: SLO{TTFT: time.Second, TPOT: 100 * time.Millisecond},
	})
}

func TestTextIsATableAPersonReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := measured(t)
		r.ErrorsByKind["http_503"], r.ErrorExamples["http_503"] = 3, "no\x1b[2J replica"
		r.Blocked = 2
		var out strings.Builder
		if err := r.WriteText(&out); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{
			"test trace, model m, chat",
			"TTFT  200 ms  200 ms  200 ms  200 ms  200 ms  20",
			"hit rate    40.0 %   800 of 2000 prompt tokens cached",
			"100.0 % of requests within TTFT 1.00 s and TPOT 100 ms",
			"http://router  20",
			`http_503  3      "no\x1b[2J replica"`,
			"sends that waited for the bound on requests in flight (2048): 2;",
		} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%q is missing in:\n%s", want, out.String())
			}
		}
		if strings.Contains(out.String(), "engine seconds") || strings.Contains(out.String(), "fell behind") {
			t.Errorf("a note that does not hold in:\n%s", out.String())
		}
	})
}

func TestAReportOfNothingSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, t.Context(), serve(t, (&engine{}).ServeHTTP), Config{Source: every(0, 0, 1)})
		var out strings.Builder
		if err := r.WriteText(&out); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), "TTFT  -") || !strings.Contains(out.String(), "hit rate    unknown") {
			t.Error(out.String())
		}
		if strings.Contains(out.String(), "NaN") {
			t.Error(out.String())
		}
		if _, err := r.WritePlot(t.TempDir()); !errors.Is(err, ErrNothingToPlot) {
			t.Errorf("plot: %v", err)
		}
		if _, err := json.Marshal(r); err != nil {
			t.Error(err)
		}
	})
}

func TestJSONHasTheFigures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		data, err := json.Marshal(measured(t))
		if err != nil {
			t.Fatal(err)
		}
		var back struct {
			OK      int     `json:"ok"`
			HitRate float64 `json:"hit_rate"`
			TTFT    struct {
				P99 float64 `json:"p99"`
			} `json:"ttft_s"`
			Raw struct {
				TPOT Dist `json:"tpot"`
			} `json:"raw_wall_s"`
			Errors  map[string]int `json:"errors_by_kind"`
			Targets []Row          `json:"targets"`
		}
		if err := json.Unmarshal(data, &back); err != nil {
			t.Fatal(err)
		}
		if back.OK != 20 || back.Errors == nil || len(back.Targets) != 1 || back.Targets[0].Requests != 20 {
			t.Errorf("json is %s", data)
		}
		near(t, "hit rate", back.HitRate, 0.4)
		near(t, "TTFT", back.TTFT.P99, 0.2)
		near(t, "raw TPOT", back.Raw.TPOT.P50, 0.02)
	})
}

func TestSamplesHaveARowEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		if err := measured(t).WriteSamples(&out); err != nil {
			t.Fatal(err)
		}
		rows, err := csv.NewReader(&out).ReadAll()
		if err != nil || len(rows) != 21 {
			t.Fatalf("%d rows, %v", len(rows), err)
		}
		want := "3.000000,3.000000,3.400000,0.000000,http://router,,ok,0.200000,0.020000,100,40,,11"
		if got := strings.Join(rows[4], ","); got != want {
			t.Errorf("row is %s, want %s", got, want)
		}
	})
}

func TestPlotsAreWholeSVG(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := measured(t)
		dir := filepath.Join(t.TempDir(), "new")
		paths, err := r.WritePlot(dir)
		if err != nil {
			t.Fatal(err)
		}
		if len(paths) != 3 {
			t.Errorf("wrote %v", paths)
		}
		for _, path := range paths {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			elements := map[string]int{}
			d := xml.NewDecoder(bytes.NewReader(data))
			for {
				token, err := d.Token()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatalf("%s: %v", path, err)
				}
				if start, ok := token.(xml.StartElement); ok {
					elements[start.Name.Local]++
				}
			}
			if elements["svg"] != 1 || elements["path"] < 5 || elements["text"] < 5 {
				t.Errorf("%s holds %v", path, elements)
			}
		}
		r.HitRate = nil
		if paths, err = r.WritePlot(t.TempDir()); err != nil || len(paths) != 2 {
			t.Errorf("without hits: %v, %v", paths, err)
		}
	})
}

func TestProgressIsToldEachFiveSecondsOrQuarterSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		show := func(progress io.Writer) (seen []Snapshot) {
			e := &engine{ttft: 200 * time.Millisecond, cached: 40}
			run(t, t.Context(), serve(t, e.ServeHTTP), Config{
				Source: every(time.Second, 21, 1), Progress: progress, Expect: Expect{Duration: 20 * time.Second},
				Observe: func(s Snapshot) { seen = append(seen, s) },
			})
			return seen
		}
		var out strings.Builder
		seen := show(&out)
		lines := out.String()
		if got := strings.Count(lines, "\n"); got != 5 || len(seen) != 5 { // at 5, 10, 15, 20 and the end
			t.Errorf("%d lines and %d snapshots:\n%s", got, len(seen), lines)
		}
		if second := seen[1]; second.Elapsed != 10*time.Second || second.Done != 10 || second.ETA != 10*time.Second || second.HitRate == nil {
			t.Errorf("second snapshot is %+v", second)
		}
		if !strings.Contains(lines, "hit rate 40.0 %  last sent in 0:10\n") || !strings.Contains(lines, "TTFT p50 ") {
			t.Error(lines)
		}
		if last := seen[4]; last.Sending || last.InFlight != 0 || last.Done != 21 {
			t.Errorf("last snapshot is %+v", last)
		}
		if seen = show(nil); len(seen) < 80 || seen[len(seen)-1].Done != 21 {
			t.Errorf("%d snapshots without lines", len(seen))
		}
	})
}

// A narrow line keeps the figures that tell most.
func TestProgressFitsTheWidth(t *testing.T) {
	rate := 0.451
	s := Snapshot{Elapsed: 3725 * time.Second, Sent: 123456, Done: 123333, InFlight: 123, Sending: true, TTFT: 12.5, HitRate: &rate, ETA: 4 * time.Minute}
	f := func(width int, want string) {
		t.Helper()
		if got := s.Fit(width); got != want {
			t.Errorf("in %d columns: %q, want %q", width, got, want)
		}
	}
	f(200, s.String())
	f(200, "1:02:05  sent 123456  done 123333  running 123  errors 0  TTFT p50 12.50 s  hit rate 45.1 %  last sent in 4:00")
	f(79, "1:02:05  running 123  TTFT p50 12.50 s  hit rate 45.1 %  last sent in 4:00")
	f(40, "1:02:05  hit rate 45.1 %")
	f(3, "1:02:05")
	s.Errors = 7
	f(40, "1:02:05  errors 7  hit rate 45.1 %")
}

func TestTimesReadWell(t *testing.T) {
	f := func(s float64, want string) {
		t.Helper()
		if got := seconds(s); got != want {
			t.Errorf("%v reads %q, want %q", s, got, want)
		}
	}
	f(0, "0")
	f(0.00025, "250 us")
	f(0.0042, "4.20 ms")
	f(0.42, "420 ms")
	f(4.2, "4.20 s")
	f(420, "420 s")
	if got := clock(3725 * time.Second); got != "1:02:05" {
		t.Errorf("clock reads %s", got)
	}
}

func TestWhatWasNotMeasuredIsNotZero(t *testing.T) {
	r := &Report{Sent: 1, Errors: 1, TargetRows: []Row{{Name: "http://t", Requests: 1, Errors: 1}}, ErrorsByKind: map[Kind]int{}}
	var text strings.Builder
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(text.String()) {
		if strings.HasPrefix(line, "http://t") && !slices.Equal(strings.Fields(line), []string{"http://t", "1", "1", "-", "-", "unknown"}) {
			t.Errorf("a target without a time: %q", line)
		}
	}
	raw, err := json.Marshal(r)
	if err != nil || !strings.Contains(string(raw), `"ttft_s":{"count":0,"mean":null,"p50":null,`) {
		t.Errorf("%s, %v", raw, err)
	}
	var back Report
	if err := json.Unmarshal(raw, &back); err != nil || back.TTFT != (Dist{}) {
		t.Errorf("%+v, %v", back.TTFT, err)
	}
}

func TestTheEndOfAnInterruptedReplayCountsTheUnfinished(t *testing.T) {
	s := Snapshot{Sent: 100, Done: 100, Unfinished: 72}
	if got, want := s.String(), "0:00  sent 100  done 28  running 0  errors 0  unfinished 72"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestAFewLateRequestsSayNothingOfTheClient(t *testing.T) {
	for count, want := range map[int]bool{2: false, 100: true} {
		r := &Report{Lateness: Dist{Count: count, P50: 1, P99: 1}, Raw: Times{TTFT: Dist{Count: count, P50: 1}}}
		var text strings.Builder
		if err := r.WriteText(&text); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(text.String(), "fell behind"); got != want {
			t.Errorf("%d requests: noted %v, want %v", count, got, want)
		}
	}
}
