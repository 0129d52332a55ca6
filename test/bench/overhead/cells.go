package main

import (
	"fmt"
	"strings"
)

// cell is one kind of request and how many of them a turn sends.
type cell struct {
	Name   string  `json:"name"`
	Bytes  int     `json:"body_bytes"`
	Stream bool    `json:"stream,omitempty"`
	Conns  int     `json:"closed_loop_connections"`
	Closed int     `json:"closed_loop_requests"`
	Rate   float64 `json:"open_loop_rate"` // requests a second, well below what any proxy can serve
	Open   int     `json:"open_loop_requests"`
	Most   int     `json:"open_loop_connections"` // at most
}

// cells are sized so that a turn takes a few seconds, and that two cores which
// engine, client and proxy share are at most a third busy in the open loop.
var cells = []cell{
	{Name: "0.4KB", Bytes: 400, Conns: 8, Closed: 12_000, Rate: 1000, Open: 2000, Most: 64},
	{Name: "16KB", Bytes: 16_000, Conns: 8, Closed: 8000, Rate: 800, Open: 1600, Most: 64},
	{Name: "256KB", Bytes: 256_000, Conns: 8, Closed: 1200, Rate: 100, Open: 200, Most: 16},
	{Name: "4MB", Bytes: 4_000_000, Conns: 4, Closed: 100, Rate: 10, Open: 25, Most: 4},
	{Name: "sse", Bytes: 2000, Stream: true, Conns: 32, Closed: 96, Rate: 30, Open: 60, Most: 128},
}

// chosen are the cells with the names in a list.
func chosen(list string, quick bool) (out []cell, err error) {
	for _, name := range strings.Split(list, ",") {
		at := -1
		for i := range cells {
			if cells[i].Name == name {
				at = i
			}
		}
		if at < 0 {
			return nil, fmt.Errorf("no cell %q", name)
		}
		c := cells[at]
		if quick {
			c.Closed, c.Open = max(c.Conns, c.Closed/10), max(10, c.Open/10)
		}
		out = append(out, c)
	}
	return out, nil
}
