package api

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/hearsay-llm/hearsay/state/prefix/scan"
)

// NoKey is 401 for a request without a key where one is needed.
func NoKey() *Error {
	return &Error{
		Status: http.StatusUnauthorized, Type: invalidRequest, Code: "invalid_api_key", Reason: "no_key",
		Message: "The request has no API key. Send it as 'Authorization: Bearer KEY' or in x-api-key.",
	}
}

// UnknownKey is 401 for a key that is not known. It says nothing of the key.
func UnknownKey() *Error {
	return &Error{
		Status: http.StatusUnauthorized, Type: invalidRequest, Code: "invalid_api_key", Reason: "unknown_key",
		Message: "The API key is not known here. Check it, or ask the operator for one.",
	}
}

// TooManyParallel is 429 for a key that has as many requests under way as it may.
func TooManyParallel(limit int) *Error {
	requests := "requests"
	if limit == 1 {
		requests = "request"
	}
	return RateLimited("rate_limit_exceeded", fmt.Sprintf(
		"The concurrency limit of your API key is reached: %d parallel %s (max_parallel). Wait until one has ended.", limit, requests), time.Second)
}

// BadPriority is 400 for a priority in a header that is none; got is what came.
func BadPriority(header, got string) *Error {
	e := BadRequest(header, "The header "+header+" is '"+strings.ToValidUTF8(shorten(got), "?")+"'. Use high, normal or low.")
	e.Reason = "bad_priority"
	return e
}

// Tier is how soon a client wants to be served, by the body's service_tier.
type Tier uint8

// The tiers that mean something here; any other word, or none, is TierNone.
const (
	TierNone Tier = iota
	TierPriority
	TierFlex
)

func tierOf(name string) Tier {
	switch name {
	case "priority":
		return TierPriority
	case "flex":
		return TierFlex
	}
	return TierNone
}

// FloorPriority appends the edit that makes the body's priority 0 where engines to which
// less is more could take it for less than that: everything but an integer from 0 on,
// since they also read integers out of texts and fractions.
func (r *Request) FloorPriority(edits []Edit, body []byte) []Edit {
	if n, ok := scan.Int(r.priority.Of(body)); ok && n >= 0 || !r.priority.Present() {
		return edits
	}
	return append(edits, Edit{r.priority, "0"})
}

// DropPriority appends the edit that makes the body as if it named no priority.
func (r *Request) DropPriority(edits []Edit) []Edit {
	if !r.priority.Present() {
		return edits
	}
	return append(edits, Edit{r.priority, "null"})
}

// SetPriority appends the edit that gives the body another priority, in the place of
// its own, if it has one.
func (r *Request) SetPriority(edits []Edit, priority int) []Edit {
	if r.priority.Present() {
		return append(edits, Edit{r.priority, strconv.Itoa(priority)})
	}
	return append(edits, r.first(`"priority":`+strconv.Itoa(priority)))
}

// SetTier appends the edit that gives the body another service_tier, where it asks to be
// served before others.
func (r *Request) SetTier(edits []Edit, name string) []Edit {
	if r.Tier != TierPriority {
		return edits
	}
	return append(edits, Edit{r.tier, strconv.Quote(name)})
}
