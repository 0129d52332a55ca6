package api

import (
	"bytes"
	"errors"
	"io"
	"mime/multipart"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// However a form is made, its model is found and nothing but it is replaced.
func TestTheModelOfAForm(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var body bytes.Buffer
		w := multipart.NewWriter(&body)
		file := func() {
			p, _ := w.CreateFormFile(rapid.SampledFrom([]string{"file", "model"}).Draw(t, "file"), "a\"b.wav")
			_, _ = p.Write(rapid.SliceOf(rapid.SampledFrom([]byte("\r\n--ab\x00"))).Draw(t, "bytes"))
		}
		field := func() {
			_ = w.WriteField(rapid.SampledFrom([]string{"language", "model2", "Model", "x-model"}).Draw(t, "name"), rapid.String().Draw(t, "value"))
		}
		some := func() {
			for range rapid.IntRange(0, 3).Draw(t, "parts") {
				if rapid.Bool().Draw(t, "a file") {
					file()
				} else {
					field()
				}
			}
		}
		some()
		model := rapid.StringN(1, 20, 50).Draw(t, "model")
		_ = w.WriteField("model", model)
		some()
		_ = w.Close()
		r, err := ParseForm(w.Boundary(), body.Bytes())
		if err != nil || r.Model != model || r.Endpoint != Other {
			t.Fatalf("got %+v, %v", r, err)
		}
		got := Splice(nil, body.Bytes(), r.RenameModel(nil, "other\"name"))
		at := r.model.Start
		want := body.String()[:at] + `other"name` + body.String()[at+len(model):]
		if string(got) != want {
			t.Fatalf("renamed: %q", got)
		}
	})
}

func TestBadForms(t *testing.T) {
	part := func(head, value string) string { return "--b\r\n" + head + "\r\n\r\n" + value + "\r\n" }
	model := part(`Content-Disposition: form-data; name="model"`, "m")
	const end = "--b--\r\n"
	f := func(name, body, param, message string) {
		t.Helper()
		_, err := ParseForm("b", []byte(body))
		var e *Error
		if !errors.As(err, &e) || e.Status != 400 || e.Param != param || !strings.Contains(e.Message, message) {
			t.Errorf("%s: got %+v", name, err)
		}
	}
	f("empty", "", "", "boundary")
	f("another boundary", strings.ReplaceAll(model+end, "--b", "--c"), "", "boundary")
	f("no end", model, "", "within a part")
	f("cut", model+"--b\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nabc", "", "ends within a part")
	f("a longer line", strings.Replace(model+end, "--b\r\n", "--bc\r\n", 1), "", "goes on")
	f("no head", "--b\r\nabc\r\n"+end, "", "head")
	f("a head of 10 kB", part("X: "+strings.Repeat("a", 10<<10), "x")+model+end, "", "head")
	const hidden = "Content-Disposition: form-data; name=\"model\""
	f("a bare LF in a head", part("X: a\n"+hidden, "other")+model+end, "", "two ways")
	f("a bare CR in a head", part("X: a\r"+hidden, "other")+model+end, "", "two ways")
	f("a folded line", part("Content-Disposition: form-data;\r\n name=\"model\"", "other")+model+end, "", "two ways")
	f("two dispositions", part("Content-Disposition: form-data; name=\"x\"\r\n"+hidden, "other")+model+end, "", "two ways")
	f("model twice", model+model+end, "model", "more than once")
	f("no model", part(`Content-Disposition: form-data; name="x"`, "m")+end, "model", "names no model")
	f("a file called model", part(`Content-Disposition: form-data; name="model"; filename="a"`, "m")+end, "model", "names no model")
	f("empty model", part(`Content-Disposition: form-data; name="model"`, "")+end, "model", "empty")
	f("no text", part(`Content-Disposition: form-data; name="model"`, "\xff")+end, "model", "name of a model")
	if _, err := ParseForm("", []byte(model+end)); err == nil {
		t.Error("no boundary: accepted")
	}
	if r, err := ParseForm("b", []byte("preamble\r\n"+part(`content-disposition:form-data;name=model`, "m")+"--b--epilogue")); err != nil || r.Model != "m" {
		t.Errorf("got %+v, %v", r, err)
	}
}

// What is read of a form is what another reader makes of it, and it alone changes
// with the name.
func FuzzParseForm(f *testing.F) {
	for _, s := range []string{
		"--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\nContent-Type: audio/wav\r\n\r\nRIFF\n--b\r\n\r\n--b\r\nX: y\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nm\r\n--b--\r\n",
		"--b\r\nX: a\r\n b\r\nContent-Disposition: form-data; name=model\r\n\r\nm\r\n--b--", "--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nm\r\n--b--", "\r\n--b \r\n\r\n\r\n\r\n--b--\r\n", "--b--", "--b\r\n\r\n--b",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := ParseForm("b", body)
		if err != nil {
			return
		}
		if string(r.model.Of(body)) != r.Model || r.Model == "" {
			t.Fatalf("model %q, its bytes %q", r.Model, r.model.Of(body))
		}
		parts, n := multipart.NewReader(bytes.NewReader(body), "b"), 0
		for {
			p, err := parts.NextRawPart()
			if err != nil {
				break // a head that it does not take
			}
			if p.FormName() != "model" || p.FileName() != "" {
				continue
			}
			n++
			if value, err := io.ReadAll(p); err == nil && string(value) != r.Model {
				t.Fatalf("model %q, another reader says %q", r.Model, value)
			}
		}
		if n > 1 {
			t.Fatalf("another reader sees %d models", n)
		}
		other, err := ParseForm("b", Splice(nil, body, r.RenameModel(nil, "x")))
		if err != nil || other.Model != "x" {
			t.Fatalf("renamed: %+v, %v", other, err)
		}
	})
}
