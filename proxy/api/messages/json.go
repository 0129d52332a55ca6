package messages

import "github.com/hearsay-llm/hearsay/state/prefix/scan"

// Values are passed as the bytes they are in the document, nil where there is none. They have been checked.

func isString(raw []byte) bool { return len(raw) > 0 && raw[0] == '"' }
func isObject(raw []byte) bool { return len(raw) > 0 && raw[0] == '{' }
func isArray(raw []byte) bool  { return len(raw) > 0 && raw[0] == '[' }
func isTrue(raw []byte) bool   { return len(raw) > 0 && raw[0] == 't' }
func isFalse(raw []byte) bool  { return len(raw) > 0 && raw[0] == 'f' }

func isNumber(raw []byte) bool {
	return len(raw) > 0 && (raw[0] == '-' || raw[0] >= '0' && raw[0] <= '9')
}

// isAbsent says whether there is no value or null.
func isAbsent(raw []byte) bool { return len(raw) == 0 || raw[0] == 'n' }

// inner is a string's bytes without the quotes, nil for anything else.
func inner(raw []byte) []byte {
	if !isString(raw) {
		return nil
	}
	return raw[1 : len(raw)-1]
}

// text is a string's decoded value, "" for anything else.
func text(raw []byte) string { return string(scan.AppendDecoded(nil, inner(raw))) }

// is says whether raw is a string of this value.
func is(raw []byte, value string) bool {
	if !isString(raw) {
		return false
	}
	in := inner(raw)
	if string(in) == value {
		return true
	}
	return scan.Plain(in) < len(in) && text(raw) == value
}

// elements calls do with each element of an array and its position until it returns an error. Another kind of value has
// no elements.
func elements(raw []byte, do func(i int, element []byte) error) error {
	c := scan.Reread(raw)
	if !c.EnterArray() {
		return nil
	}
	for i := 0; c.NextElem(); i++ {
		if err := do(i, c.Skip().Raw(raw)); err != nil {
			return err
		}
	}
	return nil
}

// pick puts the values of an object's last members of these names into values, in one pass, nil for those that are not
// there. Another kind of value has no members. len(values) = len(names).
func pick(raw []byte, names []string, values [][]byte) {
	c := scan.Reread(raw)
	if !c.EnterObject() {
		return
	}
	var scratch [48]byte
	for key, ok := c.NextField(); ok; key, ok = c.NextField() {
		v := c.Skip()
		name := key.Text(raw, scratch[:0])
		for i := range names {
			if string(name) == names[i] {
				values[i] = v.Raw(raw)
			}
		}
	}
}

// member is the value of an object's last member of this name, nil if there is none.
func member(raw []byte, name string) []byte {
	var value [1][]byte
	pick(raw, []string{name}, value[:])
	return value[0]
}

// appendAsString appends the text of a valid JSON value as the inner bytes of a JSON string. Beside quotes and backslashes
// only white space between tokens can need an escape.
func appendAsString(dst, raw []byte) []byte {
	for inside := false; len(raw) > 0; {
		n := scan.Plain(raw)
		if inside {
			dst = append(dst, raw[:n]...)
		} else {
			dst = appendTokens(dst, raw[:n])
		}
		if raw = raw[n:]; len(raw) == 0 {
			break
		}
		if raw[0] == '"' {
			dst, raw = append(dst, '\\', '"'), raw[1:]
			inside = !inside
			continue
		}
		// An escape, whose second byte may be a quote or a backslash itself.
		dst = append(dst, '\\', '\\')
		if raw = raw[1:]; len(raw) > 0 && (raw[0] == '"' || raw[0] == '\\') {
			dst, raw = append(dst, '\\', raw[0]), raw[1:]
		}
	}
	return dst
}

// appendTokens is appendAsString for what is outside of strings.
func appendTokens(dst, raw []byte) []byte {
	for _, b := range raw {
		switch b {
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, b)
		}
	}
	return dst
}
