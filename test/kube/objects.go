package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// Where routers and replicas live, and as whom routers ask.
const (
	namespace = "llm"
	account   = "hearsay"
)

// paths of objects in the namespace, without their name.
const (
	core        = "/api/v1/namespaces/" + namespace + "/"
	deployments = "/apis/apps/v1/namespaces/" + namespace + "/deployments/"
	rbac        = "/apis/rbac.authorization.k8s.io/v1/namespaces/" + namespace + "/"
	inference   = "/apis/inference.networking.k8s.io/v1/namespaces/" + namespace + "/inferencepools/"
)

// object is a manifest and where it goes.
type object struct{ path, manifest string }

// world is what is there before any router starts.
var world = []object{
	{"/api/v1/namespaces/" + namespace, "{apiVersion: v1, kind: Namespace, metadata: {name: " + namespace + "}}"},
	{core + "serviceaccounts/" + account, "{apiVersion: v1, kind: ServiceAccount, metadata: {name: " + account + "}}"},
	{"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/inferencepools.inference.networking.k8s.io", `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: inferencepools.inference.networking.k8s.io
  annotations: {api-approved.kubernetes.io: unapproved}
spec:
  group: inference.networking.k8s.io
  scope: Namespaced
  names: {kind: InferencePool, plural: inferencepools, singular: inferencepool}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, x-kubernetes-preserve-unknown-fields: true}}}}
`},
}

// rights are what docs/operate.md says that discovery needs.
var rights = []object{
	{rbac + "roles/" + account, `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: ` + account + `}
rules:
- {apiGroups: [""], resources: [pods], verbs: [list, watch]}
- {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch]}
- {apiGroups: [inference.networking.k8s.io], resources: [inferencepools], verbs: [list, watch]}
`},
	{rbac + "rolebindings/" + account, `
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: ` + account + `}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: ` + account + `}
subjects: [{kind: ServiceAccount, name: ` + account + `, namespace: ` + namespace + `}]
`},
}

// followed are a Service and an InferencePool, for the pools of these names.
var followed = []object{
	{core + "services/slices", `
apiVersion: v1
kind: Service
metadata: {name: slices}
spec: {clusterIP: None, selector: {app: slices}, ports: [{name: http, port: 80, targetPort: 8000}]}
`},
	{inference + "inference", `
apiVersion: inference.networking.k8s.io/v1
kind: InferencePool
metadata: {name: inference}
spec: {selector: {matchLabels: {app: inference}}, targetPorts: [{number: 8000}]}
`},
}

// deployment is one of simulated engines. The sleep before the stop is what
// docs/operate.md asks for.
func deployment(name string, replicas int) object {
	return object{deployments + name, strings.NewReplacer("NAME", name, "COUNT", fmt.Sprint(replicas)).Replace(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: NAME}
spec:
  replicas: COUNT
  selector: {matchLabels: {app: NAME}}
  template:
    metadata: {labels: {app: NAME}}
    spec:
      automountServiceAccountToken: false
      terminationGracePeriodSeconds: 30
      containers:
      - name: engine
        image: engine-sim
        args: [--model, sim-NAME, --speed, "4"]
        ports: [{name: http, containerPort: 8000}]
        lifecycle: {preStop: {sleep: {seconds: 5}}}
`)}
}

// applyAll makes objects, in their order. What a new kind is served by may take a moment.
func (c *client) applyAll(ctx context.Context, objects ...object) error {
	for _, o := range objects {
		var err error
		_, late := until(ctx, startWithin, "the API server takes "+o.path, func() (bool, string) {
			err = c.apply(ctx, o.path, o.manifest)
			return code(err) != http.StatusNotFound, fmt.Sprint(err)
		})
		if err == nil {
			err = late
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// token asks for one of the routers' account, as a kubelet does for a Pod.
func (c *client) token(ctx context.Context) (string, error) {
	body, _ := json.Marshal(map[string]any{
		"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": map[string]any{"expirationSeconds": 3600},
	})
	var answer struct {
		Status struct {
			Token string `json:"token"`
		} `json:"status"`
	}
	err := c.do(ctx, http.MethodPost, core+"serviceaccounts/"+account+"/token", plainJSON, body, &answer)
	return answer.Status.Token, err
}

// scale sets a Deployment's size, as a person does.
func (c *client) scale(ctx context.Context, name string, replicas int) error {
	return c.merge(ctx, deployments+name+"/scale", fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas))
}
