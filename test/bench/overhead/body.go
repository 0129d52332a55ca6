package main

import (
	"fmt"
	"math/rand/v2"
	"strconv"
)

const (
	model = "sim"
	// turns a long chat has, a system message included; a short one has two.
	turns = 16
	// digits of the number that makes a prompt different from all others.
	digits = 12
)

// chat is a request's body with a place for a number in it: early in the first
// message of the user, so that nothing behind it is a known prefix.
type chat struct {
	b  []byte
	at int // of the number
}

// newChat makes a chat body of so many bytes: a system message that all share, then
// user and assistant in turn, in text with an escape every 80 bytes.
func newChat(size int, stream bool) *chat {
	rng := rand.New(rand.NewPCG(uint64(size), 1))
	c := &chat{b: fmt.Appendf(nil, `{"model":%q,"stream":%v,"max_tokens":64,"temperature":0.7,"messages":[{"role":"system","content":"You are a helpful assistant."}`, model, stream)}
	const end = `]}`
	n := turns - 1
	if size < 4000 {
		n = 1
	}
	for i := range n {
		role := "user"
		if i%2 == 1 {
			role = "assistant"
		}
		c.b = append(c.b, `,{"role":"`+role+`","content":"`...)
		if i == 0 {
			c.at = len(c.b)
			c.b = append(c.b, fmt.Sprintf("%0*d ", digits, 0)...)
		}
		to := len(c.b) + (size-len(c.b)-len(end)-len(`"}`))/(n-i)
		c.b = appendText(c.b, to, rng)
		c.b = append(c.b, `"}`...)
	}
	c.b = append(c.b, end...)
	return c
}

// appendText appends words up to a length.
func appendText(b []byte, to int, rng *rand.Rand) []byte {
	for len(b) < to {
		for range 2 + rng.IntN(8) {
			b = append(b, byte('a'+rng.IntN(26)))
		}
		switch rng.IntN(48) {
		case 0, 1:
			b = append(b, `.\n`...)
		case 2:
			b = append(b, `, \"so\" `...)
		default:
			b = append(b, ' ')
		}
	}
	if b = b[:to]; b[to-1] == '\\' {
		b[to-1] = ' '
	}
	return b
}

// number makes the prompt the nth.
func (c *chat) number(n int64) {
	s := strconv.AppendInt(make([]byte, 0, 20), n, 10)
	place := c.b[c.at : c.at+digits]
	for i := range place {
		place[i] = '0'
	}
	copy(place[digits-len(s):], s)
}
