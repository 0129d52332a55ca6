// Package scan reads JSON where it lies: a strict cursor over bytes that allocates nothing, copies nothing and stops at
// the first fault.
//
// It accepts exactly the documents of RFC 8259 that also keep two stricter rules: strings are valid UTF-8 (RFC 8259,
// section 8.1), and arrays and objects nest at most MaxDepth deep. Lone surrogate escapes such as \ud83c are legal JSON
// text; they decode to the three bytes a surrogate has in generalised UTF-8 (WTF-8), so that no two different strings
// decode to the same bytes and both halves can be joined later.
//
// The package validates, locates and (Rewrite) replaces whole top-level fields; it builds no values and knows nothing
// about what a document means. Duplicate keys are reported like any others: what they mean is the reader's decision.
package scan
