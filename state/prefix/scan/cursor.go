package scan

// MaxDepth is how deep arrays and objects may nest in each other.
const MaxDepth = 512

// Kind is the type of a JSON value.
type Kind uint8

// The kinds of values. None stands for "no value here": the end of the document or a byte that starts no value.
const (
	None Kind = iota
	Object
	Array
	String
	Number
	True
	False
	Null
)

// Value is where a value lies in the document.
type Value struct {
	Start, End int // byte offsets in the cursor's document, End exclusive; strings include their quotes
	Kind       Kind
	Escaped    bool   // a string that holds at least one escape
	Wide       bool   // a string that may decode to something other than ASCII: it holds a non-ASCII byte or a \u escape
	Runs       uint32 // of a long string: where its runs begin among those noted, and one more; 0 if they are not known
}

// Raw returns the value's bytes in doc, which must be the document of the cursor that returned the value.
func (v Value) Raw(doc []byte) []byte { return doc[v.Start:v.End] }

// Inner returns a string's bytes in doc without the quotes, escapes as they lie. The value must be a String.
func (v Value) Inner(doc []byte) []byte { return doc[v.Start+1 : v.End-1] }

// Text returns a string's decoded bytes: a part of doc when it holds no escapes, else appended to scratch[:0]. The
// value must be a String.
func (v Value) Text(doc, scratch []byte) []byte {
	if !v.Escaped {
		return v.Inner(doc)
	}
	return AppendDecoded(scratch[:0], v.Inner(doc))
}

// Cursor walks one document. Its first fault sticks: every later call reports nothing more and Err returns it. The zero
// value is a cursor over an empty document. A cursor is a plain value and may be copied to look ahead; it must not be
// used by two goroutines at once.
//
// Iterate like this:
//
//	if c.EnterObject() {
//		for key, ok := c.NextField(); ok; key, ok = c.NextField() {
//			v := c.Skip() // or EnterObject, EnterArray; each field's value must be read
//		}
//	}
//	err := c.End()
type Cursor struct {
	doc   []byte
	pos   int
	depth int
	first bool // just inside an object or array: no comma is due
	known bool // the document has been read before
	fault Error

	longs Longs // noted so far; of a document that has been read before: those not passed yet, if they are known
	base  int   // where doc begins in that of longs
	runs  Runs  // noted so far
}

// New returns a cursor before the document's value. doc is read where it lies and must not change meanwhile.
func New(doc []byte) Cursor { return Cursor{doc: doc} }

// Reread returns a cursor over a value that a strict cursor has accepted before, from its first byte to its last. Strings
// are not checked again and their Wide is always set. In what was never accepted it finds something, without a panic.
func Reread(doc []byte) Cursor { return Cursor{doc: doc, known: true} }

// Pos is the offset of the next unread byte.
func (c *Cursor) Pos() int { return c.pos }

// Err returns the first fault met, of type *Error, or nil.
func (c *Cursor) Err() error {
	if c.fault.Problem == 0 {
		return nil
	}
	e := c.fault
	return &e
}

// End checks that only white space is left and returns the first fault met, or nil.
func (c *Cursor) End() error {
	if c.fault.Problem == 0 {
		if c.pos = skipSpace(c.doc, c.pos); c.pos < len(c.doc) {
			c.fail(TrailingData, c.pos)
		}
	}
	return c.Err()
}

// Peek returns the kind of the next value by its first byte and reads nothing but white space before it.
func (c *Cursor) Peek() Kind {
	if c.fault.Problem != 0 {
		return None
	}
	c.pos = skipSpace(c.doc, c.pos)
	if c.pos >= len(c.doc) {
		return None
	}
	return kindOf(c.doc[c.pos])
}

// EnterObject steps into the next value. It returns false and reads nothing if that value is no object.
func (c *Cursor) EnterObject() bool { return c.enter(Object) }

// EnterArray steps into the next value. It returns false and reads nothing if that value is no array.
func (c *Cursor) EnterArray() bool { return c.enter(Array) }

func (c *Cursor) enter(k Kind) bool {
	if c.Peek() != k {
		return false
	}
	if c.depth >= MaxDepth {
		c.fail(TooDeep, c.pos)
		return false
	}
	c.depth++
	c.pos++
	c.first = true
	return true
}

// NextField reads the next key of the object the cursor is in and stops before its value, which must be read next. At
// the object's end it steps out and returns false; it also returns false on a fault.
func (c *Cursor) NextField() (key Value, ok bool) {
	if !c.next('}') {
		return Value{}, false
	}
	key, c.pos, ok = c.key(c.pos)
	return key, ok
}

// NextElem stops before the next element of the array the cursor is in, which must be read next. At the array's end it
// steps out and returns false; it also returns false on a fault.
func (c *Cursor) NextElem() bool { return c.next(']') }

// next reads what stands between the members of an array or object.
func (c *Cursor) next(closing byte) bool {
	if c.fault.Problem != 0 {
		return false
	}
	i := skipSpace(c.doc, c.pos)
	if i >= len(c.doc) {
		return c.fail(Truncated, i)
	}
	first := c.first
	c.first = false
	switch {
	case c.doc[i] == closing:
		c.pos = i + 1
		c.depth--
		return false
	case first:
		c.pos = i
		return true
	case c.doc[i] != ',':
		return c.fail(Syntax, i)
	}
	i = skipSpace(c.doc, i+1)
	if i < len(c.doc) && c.doc[i] == closing {
		return c.fail(Syntax, i)
	}
	c.pos = i
	return true
}

// key reads a key and its colon at i, which is past white space.
func (c *Cursor) key(i int) (key Value, pos int, ok bool) {
	if i >= len(c.doc) {
		return Value{}, i, c.fail(Truncated, i)
	}
	if c.doc[i] != '"' {
		return Value{}, i, c.fail(Syntax, i)
	}
	key, i, ok = c.str(i)
	if !ok {
		return Value{}, i, false
	}
	i = skipSpace(c.doc, i)
	if i >= len(c.doc) {
		return Value{}, i, c.fail(Truncated, i)
	}
	if c.doc[i] != ':' {
		return Value{}, i, c.fail(Syntax, i)
	}
	return key, i + 1, true
}

// Skip reads the next value whole, checks it and says where it lies. On a fault it returns the zero Value.
func (c *Cursor) Skip() Value {
	if c.fault.Problem != 0 {
		return Value{}
	}
	c.first = false
	i := skipSpace(c.doc, c.pos)
	v, i, ok := c.scalar(i)
	if !ok {
		return Value{}
	}
	if v.Kind == Object || v.Kind == Array {
		if i, ok = c.compound(i); !ok {
			return Value{}
		}
		v.End = i
	}
	c.pos = i
	return v
}

// scalar reads a value at i that is no array and no object; of those it only names kind and start.
func (c *Cursor) scalar(i int) (v Value, end int, ok bool) {
	if i >= len(c.doc) {
		return Value{}, i, c.fail(Truncated, i)
	}
	switch k := kindOf(c.doc[i]); k {
	case String:
		return c.str(i)
	case Number:
		end, ok = c.number(i)
		return Value{Start: i, End: end, Kind: Number}, end, ok
	case True:
		return c.literal(i, "true", k)
	case False:
		return c.literal(i, "false", k)
	case Null:
		return c.literal(i, "null", k)
	case None:
		return Value{}, i, c.fail(Syntax, i)
	default:
		return Value{Start: i, Kind: k}, i, true
	}
}

// compound reads the array or object at i with all that is in it, without recursion.
func (c *Cursor) compound(i int) (end int, ok bool) {
	if c.known {
		return c.knownCompound(i)
	}
	var isObject [MaxDepth/64 + 1]uint64 // a bit per level
	level, doc := 0, c.doc
	var v Value
	for {
		// At i starts a value.
		if v, i, ok = c.scalar(i); !ok {
			return i, false
		}
		if v.Kind == Object || v.Kind == Array {
			if c.depth+level >= MaxDepth {
				return i, c.fail(TooDeep, i)
			}
			level++
			bit := uint64(1) << (level & 63)
			closing := byte(']')
			if v.Kind == Object {
				isObject[level>>6] |= bit
				closing = '}'
			} else {
				isObject[level>>6] &^= bit
			}
			i = skipSpace(doc, i+1)
			if i >= len(doc) {
				return i, c.fail(Truncated, i)
			}
			if doc[i] != closing {
				if v.Kind == Object {
					if _, i, ok = c.key(i); !ok {
						return i, false
					}
					i = skipSpace(doc, i)
				}
				continue
			}
			level--
			i++
		}
		// A value has ended at i: close what ends here, then step over the comma.
		for {
			if level == 0 {
				return i, true
			}
			i = skipSpace(doc, i)
			if i >= len(doc) {
				return i, c.fail(Truncated, i)
			}
			object := isObject[level>>6]&(1<<(level&63)) != 0
			if doc[i] == ',' {
				i = skipSpace(doc, i+1)
				if object {
					if _, i, ok = c.key(i); !ok {
						return i, false
					}
					i = skipSpace(doc, i)
				}
				break
			}
			if doc[i] == '}' && object || doc[i] == ']' && !object {
				level--
				i++
				continue
			}
			return i, c.fail(Syntax, i)
		}
	}
}

func (c *Cursor) fail(p Problem, at int) bool {
	if c.fault.Problem == 0 {
		c.fault = Error{Problem: p, Offset: at}
	}
	return false
}

func (c *Cursor) literal(i int, word string, k Kind) (v Value, end int, ok bool) {
	for j := range len(word) {
		if i+j >= len(c.doc) {
			return Value{}, i, c.fail(Truncated, i+j)
		}
		if c.doc[i+j] != word[j] {
			return Value{}, i, c.fail(Syntax, i+j)
		}
	}
	end = i + len(word)
	return Value{Start: i, End: end, Kind: k}, end, true
}

func kindOf(b byte) Kind {
	switch b {
	case '{':
		return Object
	case '[':
		return Array
	case '"':
		return String
	case 't':
		return True
	case 'f':
		return False
	case 'n':
		return Null
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		return Number
	}
	return None
}

func skipSpace(doc []byte, i int) int {
	for i < len(doc) {
		switch doc[i] {
		case ' ', '\n', '\r', '\t':
			i++
		default:
			return i
		}
	}
	return i
}
