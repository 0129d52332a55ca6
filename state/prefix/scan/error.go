package scan

import "strconv"

// Problem says what is wrong with a document.
type Problem uint8

// The problems a document can have.
const (
	Truncated    Problem = iota + 1 // the document ends inside a value
	Syntax                          // a byte that cannot stand where it stands
	BadNumber                       // a number that JSON does not know, such as 01 or NaN
	BadEscape                       // an unknown escape in a string
	BadControl                      // an unescaped control character in a string
	BadUTF8                         // a string that is not valid UTF-8
	TooDeep                         // more than MaxDepth arrays and objects in each other
	TrailingData                    // something other than white space after the document
)

var problemText = [...]string{
	Truncated:    "it ends in the middle of a value",
	Syntax:       "unexpected byte",
	BadNumber:    "malformed number",
	BadEscape:    "unknown escape in a string",
	BadControl:   "unescaped control character in a string",
	BadUTF8:      "a string is not valid UTF-8",
	TooDeep:      "nested deeper than " + strconv.Itoa(MaxDepth) + " levels",
	TrailingData: "more data after the document",
}

// String returns a short description without position, fit for a client.
func (p Problem) String() string {
	if int(p) < len(problemText) && p > 0 {
		return problemText[p]
	}
	return "unknown problem"
}

// Error is a fault in a document. Its text names the problem and the position and quotes nothing of the document, so it
// may be shown to whoever sent it.
type Error struct {
	Problem Problem
	Offset  int // position of the fault in bytes from the start of the document; its length when it is cut short
}

// Error implements error.
func (e *Error) Error() string {
	return "invalid JSON at byte " + strconv.Itoa(e.Offset) + ": " + e.Problem.String()
}
