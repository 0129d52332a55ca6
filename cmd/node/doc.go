// Package node is the composition root: a Config in, a running router out. It is
// the one place that knows all parts and joins them; tests import it to run whole
// clusters.
package node
