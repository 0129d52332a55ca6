package traces

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// jsonFault says in a user's words why a line of JSON can't be read.
func jsonFault(err error) error {
	var kind *json.UnmarshalTypeError
	var form *json.SyntaxError
	var when *time.ParseError
	switch {
	case errors.As(err, &kind) && kind.Field != "":
		return fmt.Errorf("%s is a %s, where another kind of value is wanted", strings.ToLower(kind.Field), kind.Value)
	case errors.As(err, &kind):
		return fmt.Errorf("it holds a %s alone, where an object is wanted", kind.Value)
	case errors.As(err, &when):
		return fmt.Errorf("%.40q is no time such as 2026-01-31T12:00:00Z", when.Value)
	case errors.As(err, &form) && strings.Contains(form.Error(), "end of JSON"):
		return errors.New("it is cut off: remove it if it is the last one, or record again")
	case errors.As(err, &form):
		return fmt.Errorf("it is not JSON, from its byte %d on: remove it, or record again", form.Offset)
	}
	return fmt.Errorf("it is not as expected: %w", err)
}

// readFault says in a user's words why a file can't be read further.
func readFault(err error) error {
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("the file is cut off here, in the middle of what gzip wrote: copy or record it again")
	case errors.Is(err, bufio.ErrTooLong):
		return errLongLine
	}
	return err
}
