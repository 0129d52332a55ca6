package console

import (
	_ "embed"
	"net/http"
)

// openapi describes the admin API; a test keeps it and the routes equal.
//
//go:embed openapi.json
var openapi []byte

// route is one path of the admin API.
type route struct {
	method, path string
	handler      http.HandlerFunc
	open         bool // needs no token
}

func (s *Server) table() []route {
	return []route{
		{"GET", "/livez", s.livez, true},
		{"GET", "/health", s.livez, true},
		{"GET", "/readyz", s.readyz, true},
		{"GET", "/admin/v1/openapi.json", s.document, true},
		{"GET", "/admin/v1/status", s.status, false},
		{"GET", "/admin/v1/members", s.members, false},
		{"POST", "/admin/v1/members/{id}/remove", s.removeMember, false},
		{"GET", "/admin/v1/replicas", s.replicas, false},
		{"POST", "/admin/v1/replicas", s.addReplica, false},
		{"DELETE", "/admin/v1/replicas/{id}", s.removeReplica, false},
		{"POST", "/admin/v1/replicas/{id}/drain", s.drain, false},
		{"POST", "/admin/v1/replicas/{id}/undrain", s.undrain, false},
		{"POST", "/admin/v1/replicas/{id}/flush", s.flush, false},
		{"GET", "/admin/v1/pools", s.pools, false},
		{"PUT", "/admin/v1/pools/{name}/target", s.setTarget, false},
		{"PUT", "/admin/v1/pools/{name}/policy", s.setPolicy, false},
		{"GET", "/admin/v1/diagnose", s.diagnose, false},
		{"GET", "/admin/v1/models", s.models, false},
		{"GET", "/admin/v1/decisions", s.decisions, false},
		{"GET", "/admin/v1/events", s.follow, false},
		{"GET", "/admin/v1/config", s.config, false},
		{"POST", "/admin/v1/explain", s.explainRequest, false},
		{"PUT", "/admin/v1/log-level", s.logLevel, false},
		{"POST", "/admin/v1/config/reload", s.caring(s.reload), false},
		{"POST", "/admin/v1/leave", s.caring(s.leave), false},
		{"GET", "/admin/v1/keyring", s.caring(s.listKeys), false},
		{"POST", "/admin/v1/keyring", s.caring(s.changeKeys), false},
		{"GET", "/admin/v1/snapshot", s.caring(s.saveSnapshot), false},
		{"PUT", "/admin/v1/snapshot", s.caring(s.restoreSnapshot), false},
	}
}

func (s *Server) document(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(openapi)
}
