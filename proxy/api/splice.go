package api

import "github.com/hearsay-llm/hearsay/state/prefix/scan"

// Edit replaces the bytes of one span of a body; an empty span inserts.
type Edit struct {
	Span Span
	With string
}

// RenameModel appends the edit that gives the body another model name.
func (r *Request) RenameModel(edits []Edit, name string) []Edit {
	if !r.model.Present() {
		return edits
	}
	if r.form {
		return append(edits, Edit{r.model, name})
	}
	return append(edits, Edit{r.model, string(scan.AppendQuoted(nil, name))})
}

// AskUsage appends the edit that asks the engine for usage at the end of a stream. It appends nothing where the client
// asked already or the answer is no stream; only where it appends something must the extra chunk be kept from the
// client.
func (r *Request) AskUsage(edits []Edit) []Edit {
	const on = `{"include_usage":true}`
	switch {
	case !r.Stream || r.IncludeUsage:
		return edits
	case r.includeUsage.Present():
		return append(edits, Edit{r.includeUsage, "true"})
	case !r.streamOptions.Present():
		return append(edits, Edit{Span{r.object, r.object}, `"stream_options":` + on + `,`})
	case r.streamOptionsFields:
		at := r.streamOptions.Start + 1
		return append(edits, Edit{Span{at, at}, `"include_usage":true,`})
	}
	return append(edits, Edit{r.streamOptions, on}) // null or an empty object
}

// SetCacheSalt appends the edit that replaces the client's cache_salt, or adds one: for pools that isolate tenants.
func (r *Request) SetCacheSalt(edits []Edit, salt string) []Edit {
	if r.cacheSalt.Present() {
		return append(edits, Edit{r.cacheSalt, string(scan.AppendQuoted(nil, salt))})
	}
	return append(edits, r.first(`"cache_salt":`+string(scan.AppendQuoted(nil, salt))))
}

// first is the edit that puts a field before the others.
func (r *Request) first(field string) Edit {
	if !r.empty {
		field += ","
	}
	return Edit{Span{r.object, r.object}, field}
}

// Splice appends body with the edits made to dst. Edits may come in any order and are sorted in place; they must not
// overlap. Those that insert at the same place keep their order. The rest of body is copied byte for byte.
func Splice(dst, body []byte, edits []Edit) []byte {
	for i := 1; i < len(edits); i++ { // few edits: insertion sort is stable and needs no closure
		for j := i; j > 0 && edits[j].Span.Start < edits[j-1].Span.Start; j-- {
			edits[j], edits[j-1] = edits[j-1], edits[j]
		}
	}
	at := 0
	for _, e := range edits {
		dst = append(dst, body[at:e.Span.Start]...)
		dst = append(dst, e.With...)
		at = e.Span.End
	}
	return append(dst, body[at:]...)
}

// SplicedLen is the length of the body that Splice makes.
func SplicedLen(body []byte, edits []Edit) int {
	n := len(body)
	for _, e := range edits {
		n += len(e.With) - (e.Span.End - e.Span.Start)
	}
	return n
}
