package enginesim

import (
	"slices"

	"github.com/tidwall/gjson"
)

// The versions of Anthropic's API, as anthropic-version names them. They differ in what
// a request may hold. Libraries send the version that was the newest at their major
// release: Python's from 2, Node's from 1 and Go's from 2 on send version2026.
const (
	version2026 = "2026-10-21"
	version2023 = "2023-06-01"
	versionOld  = "2023-01-01"
)

var anthropicVersions = []string{version2026, version2023, versionOld}

// samplingFields are no longer known to version2026.
var samplingFields = []string{"temperature", "top_p", "top_k"}

// checkVersion2026 refuses what version2026 no longer takes: how to sample, documents in
// what the assistant said, citations in what the user said. What is wrong otherwise is
// found later.
func checkVersion2026(body []byte) (err *apiError) {
	root, err := object(body)
	if err != nil {
		return err
	}
	root.ForEach(func(k, _ gjson.Result) bool {
		if slices.Contains(samplingFields, k.Str) {
			err = badRequest("%s: Extra inputs are not permitted", k.Str)
		}
		return err == nil
	})
	for _, m := range root.Get("messages").Array() {
		if err != nil {
			return err
		}
		for _, b := range m.Get("content").Array() {
			switch role := m.Get("role").Str; {
			case role == "assistant" && b.Get("type").Str == "document":
				return badRequest("messages: document blocks are not permitted in assistant messages")
			case role == "user" && cites(b):
				return badRequest("messages: citations are not permitted in user messages")
			}
		}
	}
	return err
}

// cites says whether a text block has citations, or one in a search result.
func cites(block gjson.Result) bool {
	switch block.Get("type").Str {
	case "text":
		return block.Get("citations.0").Exists()
	case "search_result":
		return slices.ContainsFunc(block.Get("content").Array(), func(b gjson.Result) bool { return b.Get("citations.0").Exists() })
	}
	return false
}
