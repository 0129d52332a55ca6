// Package actuator makes replicas come and go. DryRun records what it is told;
// Process runs engines on this machine; Kubernetes sizes objects of a cluster;
// Webhook tells somebody else.
//
// Actuators are told a desired state (state.Desired) with a fence, and refuse a
// leader or a decision of the past. They have replicas of their own and touch no
// others. They start no goroutine: what takes long is found finished by the next
// call.
package actuator
