package node

import (
	"errors"
	"testing"
)

// A router of the release before knows only whole facts.
func TestNewsOfTheReleaseBefore(t *testing.T) {
	var asked []string
	old := func(method string, payload []byte) ([]byte, error) {
		asked = append(asked, method+" "+string(payload))
		if method == callNews {
			return nil, errors.New(`news at r2: unknown method "news"`)
		}
		return []byte("{}"), nil
	}
	if b, err := fetchNews(7, old); err != nil || string(b) != "{}" || len(asked) != 2 || asked[1] != "facts 7" {
		t.Errorf("%s, %v, asked %q", b, err, asked)
	}
	broken := errors.New("no stream")
	if _, err := fetchNews(7, func(string, []byte) ([]byte, error) { return nil, broken }); !errors.Is(err, broken) {
		t.Error(err)
	}
}
