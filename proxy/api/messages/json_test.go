package messages

import (
	"encoding/json"
	"testing"

	"pgregory.net/rapid"
)

func TestAnyJSONAsAString(t *testing.T) {
	value := rapid.SampledFrom([]string{`"a"`, `"\""`, `"\\"`, `"\\\""`, `"é\u00e9\n"`, `""`, `1e5`, `null`, `{"k\\":"v\"" , "x":[]}`, "[\n\t1 ,\r\n \"b\" ]"})
	rapid.Check(t, func(t *rapid.T) {
		doc := "["
		for i, n := 0, rapid.IntRange(1, 6).Draw(t, "values"); i < n; i++ {
			if i > 0 {
				doc += rapid.SampledFrom([]string{",", " , ", ",\n\t", "\r\n,"}).Draw(t, "comma")
			}
			doc += value.Draw(t, "value")
		}
		doc += "\n]"
		var back string
		quoted := appendAsString([]byte(`"`), []byte(doc))
		if err := json.Unmarshal(append(quoted, '"'), &back); err != nil || back != doc {
			t.Fatalf("%q\nbecame %s: %v", doc, quoted, err)
		}
	})
}
