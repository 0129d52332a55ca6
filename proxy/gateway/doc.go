// Package gateway knows the keys that clients may use: whose they are, what they may
// claim, and how many requests of each are under way at this router.
//
// It promises that
//   - a look-up takes no lock and no memory, and its time says nothing of the keys;
//   - a table of keys is replaced whole, while requests run: what they hold stays
//     counted under the name of their key;
//   - a place taken of a key's parallel requests is given back once.
//
// It knows no secrets, only their digests, and nothing of HTTP. Counts are this
// router's own: with n routers a key may have n times its limit under way.
package gateway
