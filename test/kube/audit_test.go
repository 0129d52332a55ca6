package main

import (
	"slices"
	"testing"
)

// A watch is counted once, when it begins; one that is refused never begins; a line that
// is still being written is left for later.
func TestAuditOfWatchesAndLists(t *testing.T) {
	list, err := parseAudit([]byte(`{"stage":"ResponseComplete","verb":"watch","objectRef":{"resource":"pods"},"responseStatus":{"code":403}}
{"stage":"ResponseComplete","verb":"list","objectRef":{"resource":"pods"},"responseStatus":{"code":200}}
{"stage":"ResponseStarted","verb":"watch","objectRef":{"resource":"pods"},"responseStatus":{"code":200}}
{"stage":"ResponseComplete","verb":"watch","objectRef":{"resource":"pods"},"responseStatus":{"code":200}}
{"stage":"ResponseComplete","verb":"update","objectRef":{"resource":"deployments","subresource":"scale"},"responseStatus":{"code":200}}
{"stage":"ResponseComp`))
	if err != nil || len(list) != 4 {
		t.Fatalf("%+v, %v", list, err)
	}
	if got := kinds(list); !slices.Equal(got, []string{"list pods", "update deployments/scale", "watch pods"}) {
		t.Errorf("%q", got)
	}
	if _, err := parseAudit([]byte("nothing\n")); err == nil {
		t.Error("read what is no audit log")
	}
}
