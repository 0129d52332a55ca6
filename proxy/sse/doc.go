// Package sse watches an event stream on its way from an engine to a client.
//
// A Framer is fed the bytes as they arrive, cut anywhere, and hands back the bytes to pass on. It finds events by the
// rules of the WHATWG HTML standard, section 9.2: lines end with LF, CRLF or CR, the value of a field may follow the
// colon with or without a blank, data lines of one event are joined with LF, lines that start with a colon are comments,
// a byte order mark may stand before the first line. What it passes on is what it got, byte for byte, with one
// exception that has to be asked for: with DropUsage, usage that the router asked for and the client did not is taken
// out again (the chunk with "choices":[] and usage, whole; a "usage":null member from the other chunks).
//
// Without DropUsage the bytes pass at once and an incomplete event is only remembered. With it, an event passes when it
// is complete.
//
// It sees, without parsing the text of every delta: how many events there were, whether the first one is an error
// object, the last usage, the finish reason, and whether the end came ([DONE], or the last event of Anthropic's and the
// Responses API's streams). It invents nothing: no [DONE], no event.
package sse
