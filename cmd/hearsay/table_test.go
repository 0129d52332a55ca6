package main

import (
	"strings"
	"testing"
)

func TestTableKeepsControlCharactersOffTheTerminal(t *testing.T) {
	tab := newTable("name", "note")
	tab.row("a\x1b[31m", "x\ty\nz")
	tab.row("", 0)
	var b strings.Builder
	if err := tab.write(&b); err != nil {
		t.Fatal(err)
	}
	want := "NAME    NOTE\na [31m  x y z\n-       0\n"
	if b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
}

func TestFigures(t *testing.T) {
	f := func(got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	f(count(-1), "?")
	f(count(0), "0")
	f(count(9999), "9999")
	f(count(12_345), "12k")
	f(count(2_500_000), "2.5M")
	f(percent(-1), "?")
	f(percent(0.256), "26%")
	f(millis(-1), "?")
	f(millis(0.1234), "120µs")
	f(millis(123.4), "123ms")
	f(millis(61_000), "1m1s")
}
