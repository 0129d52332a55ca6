package sim

import (
	"sync"
	"time"
)

// driveRestart is case K02: kill -9 of one router in mid-run, and its restart. The
// only router of a cluster has its sketch as last saved, any other starts empty.
func driveRestart(c *Cluster) map[string]float64 {
	victim := min(1, c.cfg.Routers-1)
	from := len(c.work.Items) / 2
	if c.cfg.Routers == 1 {
		from = len(c.work.Items) * 3 / 4
	}
	var killed, ready time.Duration
	var wg sync.WaitGroup
	c.onDue = func(i int) {
		if i != from {
			return
		}
		disk := c.Kill(victim)
		killed = time.Since(c.began)
		wg.Go(func() {
			if c.cfg.Routers > 1 {
				time.Sleep(3 * time.Second)
				disk = nil
			} else {
				time.Sleep(500 * time.Millisecond)
			}
			if err := c.Start(victim, disk); err != nil {
				panic(err) // the same start worked before
			}
			for !c.Router(victim).warm() {
				time.Sleep(time.Millisecond)
			}
			ready = time.Since(c.began)
		})
	}
	c.Run()
	wg.Wait()
	out := map[string]float64{"down_s": (ready - killed).Seconds()}
	window := func(from, to time.Duration, router int) float64 {
		var cached, prompt float64
		for i := range c.Records {
			r := &c.Records[i]
			if r.Failed == "" && r.Sent >= from && r.Sent < to && (router < 0 || r.Router == router) {
				cached += float64(r.Cached)
				prompt += float64(r.Prompt)
			}
		}
		return cached / max(1, prompt)
	}
	out["hit_before"] = window(killed-10*time.Second, killed, -1)
	out["hit_others_while_down"] = window(killed, ready, -1)
	out["hit_1s"] = window(ready, ready+time.Second, victim)
	out["hit_5s"] = window(ready, ready+5*time.Second, victim)
	out["hit_rest"] = window(ready, 1<<62, victim)
	return out
}

// driveJoin is case K03: a new router joins and gets all traffic once it is ready.
func driveJoin(c *Cluster) map[string]float64 {
	late := c.cfg.Routers - 1
	from := len(c.work.Items) / 2
	first := 0 // request sent through it
	var took time.Duration
	var wg sync.WaitGroup
	c.target = func() int {
		if r := c.Router(late); r != nil && r.warm() {
			return late
		}
		return -1
	}
	c.onDue = func(i int) {
		if i == from {
			began := time.Now()
			if err := c.Start(late, nil); err != nil {
				panic(err) // as every other router started
			}
			wg.Go(func() {
				for !c.Router(late).warm() {
					time.Sleep(time.Millisecond)
				}
				took = time.Since(began)
			})
		}
		if first == 0 && c.target() == late {
			first = i
		}
	}
	c.Run()
	wg.Wait()
	hit := func(from, to int) float64 {
		var cached, prompt float64
		for i := from; i < min(to, len(c.Records)); i++ {
			cached += float64(c.Records[i].Cached)
			prompt += float64(c.Records[i].Prompt)
		}
		return cached / max(1, prompt)
	}
	return map[string]float64{
		"ready_s": took.Seconds(), "hit_before": hit(max(0, first-400), first), "hit_100": hit(first, first+100), "hit_400": hit(first, first+400),
	}
}

// driveBurst is case K06.
func driveBurst(c *Cluster) map[string]float64 {
	c.Run()
	holders := map[int]bool{}
	worst := time.Duration(0)
	for i := range c.Records {
		holders[c.Records[i].Replica] = true
		worst = max(worst, c.Records[i].TTFT())
	}
	return map[string]float64{"holders": float64(len(holders)), "ttft_worst_s": worst.Seconds()}
}
