package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"slices"
)

// auditPolicy makes the API server write down what the routers' account asks for.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, users: ["system:serviceaccount:` + namespace + `:` + account + `"]}
- {level: None}
`

// asked is one request of the routers' account.
type asked struct {
	Stage  string `json:"stage"`
	Verb   string `json:"verb"`
	URI    string `json:"requestURI"`
	Object struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Name        string `json:"name"`
		Group       string `json:"apiGroup"`
	} `json:"objectRef"`
	Response struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
}

// what is asked for, as a rule of a Role has it.
func (a *asked) what() string {
	s := a.Object.Resource
	if a.Object.Subresource != "" {
		s += "/" + a.Object.Subresource
	}
	return a.Verb + " " + s
}

// audit reads what the account asked for so far. A last line that is cut off is left out.
func audit(file string) ([]asked, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return parseAudit(b)
}

func parseAudit(b []byte) (list []asked, err error) {
	b = b[:bytes.LastIndexByte(b, '\n')+1]
	lines := bufio.NewScanner(bytes.NewReader(b))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var a asked
		if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
			return nil, err
		}
		if a.Stage == "ResponseStarted" || a.Verb != "watch" || a.Response.Code != http.StatusOK {
			list = append(list, a) // a watch that has begun is told of at its end, too
		}
	}
	return list, lines.Err()
}

// kinds are the different things that were asked for, in order.
func kinds(list []asked) []string {
	by := map[string]bool{}
	for _, a := range list {
		by[a.what()] = true
	}
	return slices.Sorted(maps.Keys(by))
}
