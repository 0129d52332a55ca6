package main

import (
	"context"
	"fmt"
	"io"

	"github.com/hearsay-llm/hearsay/test/bench/table"
)

// entries is what entries of the sketch take: bytes of live heap.
type entries struct {
	Entries  float64 `json:"entries"`
	Live     float64 `json:"live"` // more than before
	PerEntry float64 `json:"bytes_per_entry"`
	RSS      float64 `json:"rss"` // more than before, after a collection
	Prompts  int64   `json:"prompts"`
}

// measureEntries sends unique prompts through one router until its sketch has
// enough entries.
func measureEntries(ctx context.Context, o *options, res *result) error {
	p, _, done, err := cluster(ctx, o, 1, o.replicas)
	if err != nil {
		return err
	}
	defer done()
	r := p.Routers[0]
	d := newDriver(p, o.workers)
	d.send(ctx, o.workers, 500) // what is made once for any traffic
	before, err := settled(ctx, r)
	if err != nil {
		return err
	}
	for now := before; now.Entries-before.Entries < float64(o.entries); {
		last := now.Entries
		d.send(ctx, o.workers, d.next.Load()+1000)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if now, err = read(ctx, r); err != nil {
			return err
		}
		if now.Entries <= last {
			return fmt.Errorf("the sketch stays at %.0f entries (failed requests: %d, %s)", now.Entries, d.failed, d.example)
		}
	}
	after, err := settled(ctx, r)
	if err != nil {
		return err
	}
	e := &entries{Entries: after.Entries - before.Entries, Live: after.live() - before.live(), RSS: after.RSS - before.RSS, Prompts: d.next.Load()}
	e.PerEntry = e.Live / e.Entries
	res.Entries = e
	fmt.Fprintf(o.progress, "%.0f entries: %s MB\n", e.Entries, mb(e.Live))
	return nil
}

func (res *result) showEntries(w io.Writer) {
	e := res.Entries
	table.Print(w, "Entries of the sketch: what they add to a router's live heap, its journal of news included", 0,
		[]string{"entries", "prompts", "live MB", "bytes per entry", "per 100,000 entries MB", "RSS MB"},
		[][]string{{fmt.Sprintf("%.0f", e.Entries), fmt.Sprint(e.Prompts), mb(e.Live), table.Num(e.PerEntry), mb(e.PerEntry * 1e5), mb(e.RSS)}})
}
