package scan

// Change is what Rewrite does to one top-level field.
type Change struct {
	Field   string
	Value   string // raw JSON of the new value; "" takes the field out
	IfThere bool   // change the field only where it stands; otherwise a missing one is added
}

// Rewrite appends body with the changes made to dst, for what engines' protocols need beyond the usual edits. Fields
// not named keep their bytes and their order, white space between fields is not kept; added fields come first. At most
// 64 changes, no two of the same field. Where a named field stands more than once, all of them are replaced or taken out. It returns body's own bytes
// and false if body is no JSON object.
func Rewrite(dst, body []byte, changes []Change) ([]byte, bool) {
	start := len(dst)
	from := 0
	if len(body) >= 3 && body[0] == 0xEF && body[1] == 0xBB && body[2] == 0xBF {
		from = 3
	}
	doc := body[from:]
	c := New(doc)
	if !c.EnterObject() {
		return append(dst, body...), false
	}
	dst = append(dst, body[:from+c.Pos()]...)
	empty := true
	there := standing(c, doc, changes)
	for i, change := range changes {
		if change.Value != "" && !change.IfThere && there&(1<<i) == 0 {
			dst = appendField(dst, &empty)
			dst = AppendQuoted(dst, change.Field)
			dst = append(append(dst, ':'), change.Value...)
		}
	}
	var scratch [64]byte
	end := c.Pos()
	for key, ok := c.NextField(); ok; key, ok = c.NextField() {
		v := c.Skip()
		at := find(changes, key.Text(doc, scratch[:0]))
		switch {
		case v.Kind == None:
		case at < 0:
			dst = appendField(dst, &empty)
			dst = append(dst, doc[key.Start:v.End]...)
		case changes[at].Value != "":
			dst = appendField(dst, &empty)
			dst = append(append(dst, doc[key.Start:v.Start]...), changes[at].Value...)
		}
		end = v.End
	}
	if c.End() != nil {
		return append(dst[:start], body...), false
	}
	return append(dst, doc[end:]...), true
}

func appendField(dst []byte, empty *bool) []byte {
	if *empty {
		*empty = false
		return dst
	}
	return append(dst, ',')
}

func find(changes []Change, name []byte) int {
	for i := range changes {
		if changes[i].Field == string(name) {
			return i
		}
	}
	return -1
}

// standing has a bit for every change whose field the object holds that c, a copy of the caller's cursor, is in.
func standing(c Cursor, doc []byte, changes []Change) (bits uint64) {
	var scratch [64]byte
	for key, ok := c.NextField(); ok; key, ok = c.NextField() {
		if i := find(changes, key.Text(doc, scratch[:0])); i >= 0 {
			bits |= 1 << i
		}
		c.Skip()
	}
	return bits
}
