// Package e2e tests hearsay as its users meet it: the built binary, real processes,
// real sockets on loopback, the official OpenAI client. What can be tested inside
// one process is tested beside the code instead.
//
// Nothing here asserts speed; bounds are those the product promises (a closed
// client is passed on within a second, a new leader stands within five) or are
// generous limits that only keep a hung test from running on.
package e2e
