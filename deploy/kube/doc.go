// Package kube talks to a Kubernetes API server: whose account, over which
// connection, and what went wrong, in words for people. What the objects mean is
// its callers' business. It starts no goroutine.
package kube
