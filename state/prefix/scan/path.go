package scan

import "strconv"

// PathAt returns where in doc the byte at an offset lies: the path from doc's value down to the innermost value that
// holds it, such as [2].content[0].text, and that value's kind and start. A byte of a key or between values belongs to
// the object or array that holds them. It reads doc up to the offset, once; where that is no valid JSON, the path goes
// as far as it can be read, and the kind of what can't is None.
func PathAt(doc []byte, offset int) (path string, kind Kind, start int) {
	var stack []level
	c := New(doc)
	for {
		// Before a value.
		c.Peek()
		start = c.Pos()
		if len(stack) > 0 && start > offset {
			return pathOf(doc, stack[:len(stack)-1]), stack[len(stack)-1].kind(), stack[len(stack)-1].start
		}
		switch {
		case c.EnterObject():
			stack = append(stack, level{start: start, object: true})
		case c.EnterArray():
			stack = append(stack, level{start: start, index: -1})
		default:
			if v := c.Skip(); v.Kind == None || offset < v.End || len(stack) == 0 {
				return pathOf(doc, stack), v.Kind, start
			}
		}
		// Behind a value's end or a container's beginning: on to the next value.
		for {
			in := &stack[len(stack)-1]
			var more bool
			if in.object {
				in.key, more = c.NextField()
			} else {
				more = c.NextElem()
				in.index++
			}
			if more {
				break
			}
			stack = stack[:len(stack)-1]
			if c.Err() != nil || offset < c.Pos() || len(stack) == 0 {
				return pathOf(doc, stack), in.kind(), in.start
			}
		}
	}
}

// level is an object or array on the way.
type level struct {
	start  int
	object bool
	key    Value
	index  int
}

func (l *level) kind() Kind {
	if l.object {
		return Object
	}
	return Array
}

func pathOf(doc []byte, stack []level) string {
	var path []byte
	for _, l := range stack {
		if l.object {
			path = appendKey(path, l.key.Text(doc, nil))
		} else {
			path = append(strconv.AppendInt(append(path, '['), int64(l.index), 10), ']')
		}
	}
	return string(path)
}

// maxPathKey bounds what of a key is shown: keys are foreign text.
const maxPathKey = 64

// appendKey appends .name, or ["name"] where the name is none that could stand behind a dot.
func appendKey(path, name []byte) []byte {
	plain := len(name) > 0 && len(name) <= maxPathKey
	for i, b := range name {
		plain = plain && (b|0x20 >= 'a' && b|0x20 <= 'z' || b == '_' || i > 0 && b >= '0' && b <= '9')
	}
	if plain {
		return append(append(path, '.'), name...)
	}
	name = name[:min(len(name), maxPathKey)]
	return append(AppendQuoted(append(path, '['), string(name)), ']')
}
