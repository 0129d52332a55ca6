package sse

import (
	"bytes"
	"slices"

	"github.com/hearsay-llm/hearsay/state/prefix/scan"
)

// typeOf is the type that a payload names itself, nil for none. It is part of the payload.
func typeOf(payload []byte) []byte {
	c := scan.New(payload)
	if !c.EnterObject() {
		return nil
	}
	var scratch [16]byte
	for key, ok := c.NextField(); ok; key, ok = c.NextField() {
		if v := c.Skip(); v.Kind == scan.String && string(key.Text(payload, scratch[:0])) == "type" {
			return v.Inner(payload)
		}
	}
	return nil
}

var (
	keyModel      = []byte(`"model"`)
	keyResponse   = []byte(`"response"`)
	keyResponseID = []byte(`"response_id"`)
)

// renames says whether there may be something to rename in a payload. Text can't hold the keys, since quotes in it are
// escaped.
func (f *Framer) renames(payload []byte) bool {
	o := &f.opts
	return o.Model != "" && bytes.Contains(payload, keyModel) ||
		(o.Tag != "" || o.Previous != "") && (bytes.Contains(payload, keyResponse) || bytes.Contains(payload, keyResponseID))
}

// rename gives an event other names and ids. Its payload starts at that place of the event.
func (f *Framer) rename(payload []byte, at int) {
	n := len(f.edits)
	f.names(payload, at, eventItself)
	if n == 1 && len(f.edits) > 1 { // the usage's stands first
		cut := f.edits[0]
		f.edits = append(f.edits[:0], f.edits[1:]...)
		i := 0
		for i < len(f.edits) && f.edits[i].from < cut.from {
			i++
		}
		f.edits = slices.Insert(f.edits, i, cut)
	}
}

// part is which object of an event is read.
type part uint8

const (
	eventItself part = iota
	messageIn
	responseIn
)

// names notes what has to be edited of the names and ids in a JSON object that starts at that place: an event's own, and
// those of its message or response. What can't be read has none from there on.
func (f *Framer) names(doc []byte, at int, of part) {
	c := scan.New(doc)
	if !c.EnterObject() {
		return
	}
	o := &f.opts
	with := func(from, to int, s string) {
		if s != "" {
			f.edits = append(f.edits, edit{at + from, at + to, s})
		}
	}
	var scratch [32]byte
	for key, ok := c.NextField(); ok; key, ok = c.NextField() {
		v := c.Skip()
		name := string(key.Text(doc, scratch[:0]))
		if v.Kind == scan.Object && of == eventItself {
			switch name {
			case "message":
				f.names(v.Raw(doc), at+v.Start, messageIn)
			case "response":
				f.names(v.Raw(doc), at+v.Start, responseIn)
			}
		}
		if v.Kind != scan.String {
			continue
		}
		switch {
		case name == "model" && (o.Of == "" || string(v.Raw(doc)) == o.Of):
			with(v.Start, v.End, o.Model)
		case name == "previous_response_id" && of == responseIn && o.Previous != "":
			with(v.Start, v.End, o.Previous)
		case v.End-v.Start <= 2: // no id
		case of == responseIn && (name == "id" || name == "previous_response_id"), of == eventItself && name == "response_id":
			with(v.End-1, v.End-1, o.Tag)
		}
	}
}
