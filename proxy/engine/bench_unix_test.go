//go:build unix

package engine

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// canned answers every request on a connection with the same bytes, at next to no
// cost.
func canned(b *testing.B, answer []byte) (url string) {
	b.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				br := bufio.NewReader(c)
				for {
					line, err := br.ReadString('\n')
					if err != nil {
						return
					}
					if strings.TrimSpace(line) != "" {
						continue
					}
					if _, err := c.Write(answer); err != nil {
						return
					}
				}
			}()
		}
	}()
	return "http://" + ln.Addr().String()
}

func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// One reading of a vLLM over loopback: what a router pays per reading, the canned
// server included.
func BenchmarkReading(b *testing.B) {
	text := []byte(vllmText)
	for i := range 700 { // a real engine's histograms
		text = fmt.Appendf(text, "vllm:time_to_first_token_seconds_bucket{engine=\"0\",le=\"%d\",model_name=\"Qwen/Qwen3-8B\"} %d.0\n", i, i)
	}
	answer := fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nDate: %s\r\nContent-Length: %d\r\n\r\n%s", time.Now().UTC().Format(http.TimeFormat), len(text), text)
	tr := &http.Transport{DisableCompression: true}
	defer tr.CloseIdleConnections()
	rd := NewReader(&http.Client{Transport: tr}, func(string) string { return "" })
	ranks := []state.Replica{{ID: "a", URL: canned(b, answer), Engine: state.EngineVLLM}}
	ctx := context.Background()
	if r := rd.Read(ctx, ranks)[0]; !r.OK {
		b.Fatal(r.Err)
	}
	b.ReportAllocs()
	began := cpu()
	for b.Loop() {
		rd.Read(ctx, ranks)
	}
	b.ReportMetric(float64((cpu()-began).Microseconds())/float64(b.N), "cpu-us/op")
}
