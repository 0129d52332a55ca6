// Package mesh keeps one authenticated, framed stream to every peer router, and
// carries other protocols' streams (Raft's) on the same port.
//
// The router with the lower id dials; if it cannot, the other one does after a
// grace period, and of two streams the one dialled by the lower id stays. Frames
// of one stream arrive in order and at most once; a frame that Send took is lost
// only when the stream breaks, which OnDown tells. A peer that reads slowly costs
// its own bounded queue and nobody else's.
//
// With a shared secret, both sides prove that they hold it before anything else is
// exchanged, and the stream is encrypted and authenticated with AES-256-GCM under
// keys of that connection alone (X25519 and the secret through HKDF-SHA256, so
// that a secret that leaks later opens no recorded traffic). A secret makes every
// holder a full member: it gives no identity to a single router, and nothing stops
// one member from claiming another's id. With TLS, certificates do that and the
// secret, if any, is proved inside. With neither, streams are plain: fit for
// loopback only, which is for the caller to enforce.
//
// Routers of another cluster, another prefix hash scheme or an unreadable wire
// version are refused, with a warning, a metric and an entry in Refusals.
package mesh
