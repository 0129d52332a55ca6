package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/hearsay-llm/hearsay/test/harness"
)

// Where the control plane listens, in its own network.
const (
	etcdURL   = "http://127.0.0.1:2379"
	etcdPeers = "http://127.0.0.1:2380"
	apiAddr   = "127.0.0.1:6443"
)

// startWithin is how long a part of the control plane may take to start.
const startWithin = 2 * time.Minute

// plane is a running control plane. Its methods are for one goroutine.
type plane struct {
	bin     string // directory of the binaries
	dir     string
	secrets *secrets
	admin   *client
	etcd    *harness.Proc
	api     *harness.Proc
	others  []*harness.Proc
}

// startPlane starts all of it. On an error nothing is left running.
func startPlane(ctx context.Context, bin, dir string) (p *plane, err error) {
	p = &plane{bin: bin, dir: dir}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	if p.secrets, err = newSecrets(dir); err != nil {
		return p, err
	}
	p.admin = newClient("https://"+apiAddr, p.secrets.admin, p.secrets.ca)
	if err := os.WriteFile(p.secrets.path("audit.yaml"), []byte(auditPolicy), 0o600); err != nil {
		return p, err
	}
	p.etcd, err = harness.StartCommand(
		dir, "etcd", filepath.Join(bin, "etcd"), "--name=e2e", "--data-dir="+filepath.Join(dir, "etcd"), "--unsafe-no-fsync",
		"--listen-client-urls="+etcdURL, "--advertise-client-urls="+etcdURL,
		"--listen-peer-urls="+etcdPeers, "--initial-advertise-peer-urls="+etcdPeers, "--initial-cluster=e2e="+etcdPeers,
	)
	if err != nil {
		return p, err
	}
	p.etcd.API = etcdURL
	if err := p.etcd.WaitReady(ctx, startWithin); err != nil {
		return p, err
	}
	if _, err := p.startAPI(ctx); err != nil {
		return p, err
	}
	return p, p.startOthers()
}

// startAPI starts the API server, and says how long it took to be ready.
func (p *plane) startAPI(ctx context.Context) (took time.Duration, err error) {
	s := p.secrets.path
	p.api, err = harness.StartCommand(
		p.dir, "kube-apiserver", filepath.Join(p.bin, "kube-apiserver"),
		"--bind-address=127.0.0.1", "--secure-port="+apiAddr[strings.LastIndexByte(apiAddr, ':')+1:], "--advertise-address="+podNet.IP.String(),
		"--endpoint-reconciler-type=none", // the Service of the API server itself, which nobody asks
		"--etcd-servers="+etcdURL, "--service-cluster-ip-range=10.78.0.0/16", "--authorization-mode=RBAC",
		"--tls-cert-file="+s("server.crt"), "--tls-private-key-file="+s("server.key"), "--cert-dir="+s("certificates"),
		"--token-auth-file="+s("users.csv"), "--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file="+s("accounts.key"), "--service-account-signing-key-file="+s("accounts.key"),
		"--audit-policy-file="+s("audit.yaml"), "--audit-log-path="+s("audit.log"),
	)
	if err != nil {
		return 0, err
	}
	ended := false
	took, err = until(ctx, startWithin, "the API server is ready", func() (bool, string) {
		ended = errors.Is(p.api.Signal(syscall.Signal(0)), os.ErrProcessDone)
		err := p.admin.get(ctx, "/readyz", nil)
		return ended || err == nil, fmt.Sprint(err, "\n", tail(p.api.Log()))
	})
	if ended {
		err = errors.New("the API server ended:\n" + tail(p.api.Log()))
	}
	return took, err
}

// startOthers starts what acts on objects: only those controllers that have to do with
// Deployments and Services.
func (p *plane) startOthers() error {
	token := p.secrets.path("admin.token")
	if err := os.WriteFile(token, []byte(p.secrets.admin), 0o600); err != nil {
		return err
	}
	config, err := p.secrets.kubeconfig("admin.kubeconfig", "https://"+apiAddr, token)
	if err != nil {
		return err
	}
	controllers := "deployment-controller,replicaset-controller,statefulset-controller,garbage-collector-controller,endpointslice-controller,serviceaccount-controller"
	for name, args := range map[string][]string{
		"kube-controller-manager": {"--controllers=" + controllers},
		"kube-scheduler":          {},
	} {
		args = append([]string{filepath.Join(p.bin, name), "--kubeconfig=" + config, "--leader-elect=false", "--secure-port=0"}, args...)
		proc, err := harness.StartCommand(p.dir, name, args...)
		if err != nil {
			return err
		}
		p.others = append(p.others, proc)
	}
	return nil
}

// compact makes etcd forget all versions but the last.
func (p *plane) compact(ctx context.Context) error {
	etcd := newClient(etcdURL, "", nil)
	var now struct {
		Header struct {
			Revision string `json:"revision"`
		} `json:"header"`
	}
	if err := etcd.do(ctx, http.MethodPost, "/v3/kv/range", plainJSON, []byte(`{"key":"AA=="}`), &now); err != nil {
		return fmt.Errorf("ask etcd: %w", err)
	}
	if err := etcd.do(ctx, http.MethodPost, "/v3/kv/compaction", plainJSON, fmt.Appendf(nil, `{"revision":%q,"physical":true}`, now.Header.Revision), nil); err != nil {
		return fmt.Errorf("compact etcd: %w", err)
	}
	return nil
}

// close ends all of it, the API server at once: it would wait for its watches.
func (p *plane) close() {
	for _, proc := range append([]*harness.Proc{p.api, p.etcd}, p.others...) {
		if proc != nil {
			proc.Kill()
		}
	}
}

// tail is the end of a log.
func tail(log string) string {
	return log[max(0, len(log)-2000):]
}

// until polls, and says how long it took. see says whether it is so, and else how it is.
func until(ctx context.Context, bound time.Duration, what string, see func() (bool, string)) (time.Duration, error) {
	begin := time.Now()
	for {
		ok, now := see()
		took := time.Since(begin)
		switch {
		case ok:
			return took, nil
		case ctx.Err() != nil:
			return took, ctx.Err()
		case took > bound:
			return took, fmt.Errorf("%s: not within %v: %s", what, bound, now)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
