// Package observe is loop 0: it reads the engines that this router is the reader
// of, and hands the readings on.
//
// Each engine process is read by one router, chosen by rendezvous hashing over the
// live routers, so that a hundred routers do not scrape every engine; one reading
// serves all data-parallel ranks behind a URL. When a reading grows old, whatever
// the reason, the next router in rendezvous order takes over, and the one after it
// later still: no membership news is needed. So a second router has looked before
// anybody takes an engine for unreachable. Engines with work are read often, idle
// ones seldom, those that can't be reached by the first two routers often enough to
// notice that they are back. An engine that hangs holds up only its own next
// reading.
//
// What readings say of an engine's cache (its size, that its process is another one,
// that it was emptied) goes to a Cache, with the instant before which all is gone.
//
// The package does not know engines: a Reader does.
package observe
