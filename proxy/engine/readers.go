package engine

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/hearsay-llm/hearsay/state"
)

// info is what an engine says once of its capacity.
type info struct {
	at      time.Time // when it was asked; zero = never
	tokens  float64   // SGLang: of each rank
	page    float64   // SGLang: tokens of a block
	slots   float64   // llama.cpp
	context float64   // llama.cpp: tokens of a slot
}

// infoEvery is how often capacity and sleep are asked for where they are not in
// every answer.
const infoEvery = 5 * time.Second

func (s *session) stale() bool {
	return s.p.info.at.IsZero() || time.Since(s.p.info.at) >= infoEvery
}

func (s *session) readVLLM() error {
	body, err := s.ask("/metrics")
	if err != nil {
		return err
	}
	s.p.lora = bytes.Contains(body, loraFamily) // its head stands there before any sample
	return readExposition(body, &vllmDialect, s.ranks, s.out)
}

var loraFamily = []byte(loraInfo)

// readSGLang prefers /v1/loads, which also tells waiting uncached tokens, and falls
// back to /metrics.
func (s *session) readSGLang() error {
	if !s.p.noLoads {
		body, err := s.ask("/v1/loads?include=core,queues,memory")
		if err == nil {
			err = readLoads(body, s.ranks, s.out)
		}
		if err == nil {
			s.readServerInfo()
			return nil
		}
		if st := statusOf(err); st == 0 && !errors.Is(err, errBadLoads) || st == http.StatusServiceUnavailable {
			return err
		}
		s.p.noLoads = true // an older release
	}
	body, err := s.ask("/metrics")
	if err != nil {
		return err
	}
	if err := readExposition(body, &sglangDialect, s.ranks, s.out); err != nil {
		return err
	}
	s.readServerInfo()
	return nil
}

// readServerInfo fills in capacity and block size. That they can't be had is no
// fault: they stay unknown.
func (s *session) readServerInfo() {
	if s.p.info.at.IsZero() {
		s.p.info.at = time.Now()
		for _, path := range []string{"/server_info", "/get_server_info"} {
			body, _, err := s.get(s.ctx, path)
			if err != nil {
				continue
			}
			var doc struct {
				Tokens float64 `json:"max_total_num_tokens"`
				Page   float64 `json:"page_size"`
				LoRA   bool    `json:"enable_lora"`
			}
			if json.Unmarshal(body, &doc) == nil {
				s.p.info.tokens, s.p.info.page, s.p.lora = doc.Tokens, doc.Page, doc.LoRA
				break
			}
		}
	}
	for i := range s.out {
		if t := s.p.info.tokens; s.out[i].Capacity <= 0 && t > 0 && t < maxFigure {
			s.out[i].Capacity = t
		}
		if p := s.p.info.page; p > 0 && p < maxFigure {
			s.out[i].BlockSize = p
		}
	}
}

var errBadLoads = errors.New("bad loads")

// readLoads fills readings from SGLang's /v1/loads, which has one entry per
// data-parallel rank: summed for a process that is one replica.
func readLoads(body []byte, ranks []state.Replica, out []state.Reading) error {
	var doc struct {
		Version string `json:"version"`
		Loads   []struct {
			Rank            int      `json:"dp_rank"`
			Running         *float64 `json:"num_running_reqs"`
			Waiting         *float64 `json:"num_waiting_reqs"`
			WaitingUncached *float64 `json:"num_waiting_uncached_tokens"`
			Max             *float64 `json:"max_total_num_tokens"`
			Usage           *float64 `json:"token_usage"`
		} `json:"loads"`
	}
	if err := json.Unmarshal(body, &doc); err != nil {
		return fmt.Errorf("%w: %w", errBadLoads, err)
	}
	if len(doc.Loads) == 0 {
		return fmt.Errorf("%w: none reported", errBadLoads)
	}
	for i := range out {
		var sum [4]tally
		var usage tally
		add := func(t *tally, v *float64) {
			if v != nil && *v >= 0 && *v <= maxFigure {
				t.add(0, *v)
			}
		}
		for _, l := range doc.Loads {
			if len(ranks) > 1 && l.Rank != ranks[i].Rank {
				continue
			}
			add(&sum[0], l.Running)
			add(&sum[1], l.Waiting)
			add(&sum[2], l.WaitingUncached)
			add(&sum[3], l.Max)
			add(&usage, l.Usage)
		}
		r := &out[i]
		r.Running, r.Waiting, r.WaitingUncached = sum[0].total(), sum[1].total(), sum[2].total()
		r.Capacity, r.KVUsage, r.Version = sum[3].total(), usage.mean(), bounded(doc.Version)
	}
	return nil
}

// readLlamaCpp reads /metrics, else /slots, where they are enabled, and /props now
// and then.
func (s *session) readLlamaCpp() error {
	r := &s.out[0]
	asked := false
	if s.stale() || s.p.noMetrics && s.p.noSlots {
		body, err := s.ask("/props")
		asked = true
		if err == nil {
			err = s.readProps(body)
		}
		if st := statusOf(err); err != nil && (st == 0 || st == http.StatusServiceUnavailable) {
			return err
		}
	}
	if err := s.readSlots(&asked); err != nil {
		return err
	}
	if !asked { // nothing of the load is to be had: whether it lives
		if _, err := s.ask("/health"); err != nil {
			return err
		}
	}
	if i := &s.p.info; i.slots > 0 {
		r.Slots = i.slots
		if i.context > 0 {
			r.Context, r.Capacity = i.context, i.slots*i.context
		}
		if r.Running >= 0 && r.KVUsage < 0 {
			r.KVUsage = min(1, r.Running/i.slots)
		}
	}
	return nil
}

func (s *session) readProps(body []byte) error {
	var props struct {
		Slots    float64 `json:"total_slots"`
		Settings struct {
			NCtx float64 `json:"n_ctx"`
		} `json:"default_generation_settings"`
		Sleeping bool `json:"is_sleeping"`
	}
	if err := json.Unmarshal(body, &props); err != nil {
		return fmt.Errorf("parse props: %w", err)
	}
	i := info{at: time.Now()}
	if props.Slots > 0 && props.Slots*max(1, props.Settings.NCtx) <= maxFigure {
		i.slots, i.context = props.Slots, max(0, props.Settings.NCtx)
	}
	s.p.info = i
	if props.Sleeping {
		s.p.info.at = time.Time{} // look again next time
		s.out[0].Loading = true
	}
	return nil
}

// readSlots reads the load where it can be had. asked is set when anything was
// answered.
func (s *session) readSlots(asked *bool) error {
	r := &s.out[0]
	off := func(st int) bool {
		return st == http.StatusNotFound || st == http.StatusNotImplemented || st == http.StatusBadRequest || st == http.StatusForbidden
	}
	if !s.p.noMetrics {
		body, err := s.ask("/metrics")
		if err == nil {
			*asked = true
			if err = readExposition(body, &llamaDialect, s.ranks[:1], s.out[:1]); err == nil {
				return nil
			}
		}
		switch st := statusOf(err); {
		case off(st), errors.Is(err, errNoMetric):
			s.p.noMetrics = true
		default:
			return err
		}
	}
	if s.p.noSlots {
		return nil
	}
	body, err := s.ask("/slots")
	if err != nil {
		if off(statusOf(err)) {
			s.p.noSlots = true
			return nil
		}
		return err
	}
	*asked = true
	var slots []struct {
		NCtx       float64 `json:"n_ctx"`
		Processing bool    `json:"is_processing"`
	}
	if err := json.Unmarshal(body, &slots); err != nil || len(slots) == 0 {
		s.p.noSlots = true
		return nil
	}
	r.Running = 0
	for i := range slots {
		if slots[i].Processing {
			r.Running++
		}
	}
	if s.p.info.slots == 0 {
		s.p.info.slots, s.p.info.context = float64(len(slots)), min(max(0, slots[0].NCtx), maxFigure/float64(len(slots)))
	}
	return nil
}

// healthPaths tell whether a server of which nothing else is known lives.
var healthPaths = []string{"/health", "/v1/models"}

// readGeneric finds out whether a server lives: all figures stay unknown. One that was
// found to have such a path must answer there; of one that is configured as a server
// without metrics any answer will do.
func (s *session) readGeneric() error {
	paths := healthPaths
	if s.p.health != "" {
		paths = []string{s.p.health}
	}
	var err error
	for _, path := range paths {
		_, err = s.ask(path)
		switch statusOf(err) {
		case http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests:
			err = nil // it is there
		case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented, http.StatusBadRequest:
			continue
		}
		if err == nil {
			s.p.health = path
		}
		return err
	}
	if s.p.health == "" && generic(s.ranks[0].Engine) {
		return nil
	}
	return err
}
