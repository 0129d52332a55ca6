// Package autoscale is loop 3: it says how many replicas each pool should have.
// It runs on the cluster's leader only, for the length of a term.
//
// A round is observe -> plan (a pure function) -> guard -> commit -> reconcile. A
// decision is committed before anything is done about it, and what is done follows
// from the committed facts alone, so that a leader that dies at any point is
// resumed by the next one. What the leader does to the world carries the term's
// epoch and the decision: an actuator refuses a leader of the past.
//
// It promises that two decisions about one target never overlap, that a replica is
// stopped only after every live router has acknowledged that it drains and reports
// nothing running there (or the drain's deadline has passed), and that every
// decision and every refusal has a reason.
//
// It does not route round a slow or uneven replica: a skewed pool is loop 2's, and
// the refusal says so. It learns how fast replicas are from Config.Learned, and from
// rows and decisions what is asked and how long a start takes.
package autoscale
