// Package deploy checks the manifests of deploy/kubernetes: that they are understood,
// fit each other and the configuration in them, and give routers the rights that their
// calls take, and no others.
package deploy
