// Package requests holds what clients may send: every shape of body, header and
// framing that docs/cases.md lists under Requests, sent as bytes to a whole router
// (cmd/node) in front of fake engines that record what reaches them, byte for byte.
//
// Tests are named after the rows of that table. Most run over loopback; those that
// need minutes of a clock run in a bubble over a network in memory. Nothing here
// looks inside the router: a row is shown by what clients and engines see, and by
// the router's metrics.
package requests
