package engine

import (
	"bytes"
	"encoding/json"
)

// Names and value of the headers by which vLLM is asked to add its load to a reply,
// and does. Streams have none: their header is sent before anything is known.
const (
	LoadRequestHeader = "endpoint-load-metrics-format"
	LoadRequestValue  = "JSON"
	LoadReplyHeader   = "endpoint-load-metrics"
)

// maxLoadHeader bounds the value that is looked at, bytes.
const maxLoadHeader = 4 << 10

// Load is what a reply tells of its engine; negative is unknown.
type Load struct {
	KVUsage float64 // 0..1
	Waiting float64 // requests
}

// LoadHeader reads the value of LoadReplyHeader. ok is false when it tells nothing.
func LoadHeader(value []byte) (l Load, ok bool) {
	l = Load{-1, -1}
	value = bytes.TrimSpace(value)
	if len(value) == 0 || len(value) > maxLoadHeader {
		return l, false
	}
	if rest, found := bytes.CutPrefix(value, []byte(LoadRequestValue)); found {
		value = bytes.TrimSpace(rest)
	}
	var doc struct {
		Named struct {
			KV      *float64 `json:"kv_cache_usage_perc"`
			OldKV   *float64 `json:"gpu_cache_usage_perc"`
			Waiting *float64 `json:"num_requests_waiting"`
		} `json:"named_metrics"`
	}
	if json.Unmarshal(value, &doc) != nil {
		return l, false
	}
	n := &doc.Named
	if n.KV == nil {
		n.KV = n.OldKV
	}
	if n.KV != nil && *n.KV >= 0 && *n.KV <= 1 {
		l.KVUsage = *n.KV
	}
	if n.Waiting != nil && *n.Waiting >= 0 && *n.Waiting <= maxFigure {
		l.Waiting = *n.Waiting
	}
	return l, l.KVUsage >= 0 || l.Waiting >= 0
}
