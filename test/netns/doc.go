// Package netns gives processes hosts of their own on one machine: each has a network namespace with a real
// address, and what the hosts send each other passes a switch in this process, which can delay it, lose it, and let
// through one direction or one protocol only.
//
// It needs Linux, root and /dev/net/tun, and no tool: neither ip nor tc nor iptables, and no netem in the kernel.
// Namespaces have no names, and devices end with this process, so that nothing is left behind however it ends. To
// look into one from outside: nsenter -t PID -n, with the id of a process that runs there.
//
// It does not model bandwidth. A packet that is not held back passes in some ten microseconds.
package netns
