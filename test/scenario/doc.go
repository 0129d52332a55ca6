// Package scenario tests whole clusters through situations of their life: real
// routers, simulated engines and clients in one testing/synctest bubble over a
// simulated network. Times are virtual and exact; the order of what happens at one
// instant is not, so scenarios assert properties and bounds.
package scenario
