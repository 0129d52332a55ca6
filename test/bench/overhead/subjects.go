package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hearsay-llm/hearsay/test/harness"
)

// subject is whom requests are sent to: a proxy, or the engine itself.
type subject struct {
	name, addr string
	proc       *process // nil: nobody between client and engine
	admin      string   // base URL of the router's
}

// used is what the subject's processes have used so far; nothing without a proxy.
func (s *subject) used() (usage, error) {
	if s.proc == nil {
		return usage{}, nil
	}
	return used(s.proc.pid())
}

// setup is everything that runs.
type setup struct {
	engine   *process
	subjects []*subject // direct first
}

func (a *setup) stop() {
	for _, s := range a.subjects {
		if s.proc != nil {
			s.proc.stop()
		}
	}
	if a.engine != nil {
		a.engine.stop()
	}
}

// older is the name of a router of an older build.
const older = "before"

// startAll starts the engine and all proxies in front of it. On an error nothing is
// left running.
func startAll(ctx context.Context, o *options, dir string, proxies []string) (a *setup, err error) {
	a = &setup{}
	defer func() {
		if err != nil {
			a.stop()
		}
	}()
	self, err := os.Executable()
	if err != nil {
		return a, err
	}
	ports, err := harness.Ports(1 + 3*len(proxies))
	if err != nil {
		return a, err
	}
	addr := func() string {
		port := ports[0]
		ports = ports[1:]
		return fmt.Sprintf("127.0.0.1:%d", port)
	}
	engine := addr()
	if a.engine, err = launch(dir, "engine", nil, self, "-as", "engine", "-listen", engine, "-gap", o.gap.String()); err != nil {
		return a, err
	}
	if err := a.engine.ready(ctx, "http://"+engine+"/health"); err != nil {
		return a, err
	}
	a.subjects = append(a.subjects, &subject{name: direct, addr: engine})
	procs := fmt.Sprintf("GOMAXPROCS=%d", o.cores)
	for _, name := range proxies {
		s := &subject{name: name, addr: addr()}
		ready := "http://" + s.addr + "/health"
		var argv []string
		switch name {
		case "nginx":
			file, err := write(dir, "nginx.conf", nginxConf(dir, s.addr, engine, o.cores))
			if err != nil {
				return a, err
			}
			argv = []string{"nginx", "-p", dir, "-c", file, "-e", "stderr"}
		case "haproxy":
			file, err := write(dir, "haproxy.cfg", haproxyConf(s.addr, engine, o.cores))
			if err != nil {
				return a, err
			}
			argv = []string{"haproxy", "-db", "-q", "-f", file}
		case "net/http":
			argv = []string{self, "-as", "reverse", "-listen", s.addr, "-engine", engine}
		case "bare":
			argv = []string{self, "-as", "bare", "-listen", s.addr, "-engine", engine}
		case "hearsay", older:
			admin := addr()
			file, err := write(dir, name+".yaml", hearsayConf(filepath.Join(dir, name), s.addr, admin, addr(), engine))
			if err != nil {
				return a, err
			}
			bin := o.bin
			if name == older {
				bin = o.before
			}
			argv = []string{bin, "serve", "--config", file}
			s.admin = "http://" + admin
			ready = s.admin + "/readyz"
		default:
			return a, fmt.Errorf("no proxy %q", name)
		}
		if s.proc, err = launch(dir, strings.ReplaceAll(name, "/", ""), []string{procs}, argv...); err != nil {
			return a, err
		}
		a.subjects = append(a.subjects, s)
		if err := s.proc.ready(ctx, ready); err != nil {
			return a, err
		}
	}
	return a, nil
}

func write(dir, name, text string) (file string, err error) {
	file = filepath.Join(dir, name)
	return file, os.WriteFile(file, []byte(text), 0o600)
}

// nginxConf passes bodies on as they come, in both directions: that is what streams
// need, and for long bodies it is cheaper than files.
func nginxConf(dir, listen, engine string, cores int) string {
	user := ""
	if os.Getuid() == 0 {
		user = "user root;\n"
	}
	return fmt.Sprintf(`daemon off;
%[5]sworker_processes %[4]d;
pid %[1]s/nginx.pid;
error_log stderr crit;
events { worker_connections 2048; }
http {
	access_log off;
	tcp_nodelay on;
	client_body_temp_path %[1]s/body;
	proxy_temp_path %[1]s/proxy;
	fastcgi_temp_path %[1]s/fastcgi;
	uwsgi_temp_path %[1]s/uwsgi;
	scgi_temp_path %[1]s/scgi;
	client_max_body_size 64m;
	keepalive_timeout 300s;
	keepalive_requests 1000000000;
	upstream engine {
		server %[3]s;
		keepalive 256;
		keepalive_timeout 300s;
		keepalive_requests 1000000000;
	}
	server {
		listen %[2]s;
		location / {
			proxy_pass http://engine;
			proxy_http_version 1.1;
			proxy_set_header Connection "";
			proxy_request_buffering off;
			proxy_buffering off;
			proxy_read_timeout 300s;
		}
	}
}
`, dir, listen, engine, cores, user)
}

func haproxyConf(listen, engine string, cores int) string {
	return fmt.Sprintf(`global
	nbthread %d
	maxconn 4096
defaults
	mode http
	timeout connect 5s
	timeout client 300s
	timeout server 300s
	timeout http-keep-alive 300s
	option http-no-delay
	http-reuse always
frontend clients
	bind %s
	default_backend engine
backend engine
	server engine %s
`, cores, listen, engine)
}

func hearsayConf(dir, api, admin, cluster, engine string) string {
	return fmt.Sprintf(`node: {name: r1, data_dir: %q}
listen: {api: %q, admin: %q, cluster: %q}
cluster: {join: [], bootstrap_expect: 1}
pools:
  - name: chat
    model: %s
    policy: ttft
    engine: vllm
    replicas: [{url: "http://%s"}]
`, dir, api, admin, cluster, model, engine)
}

// idle measures what proxies take while nobody asks for anything, CPU us a second.
func (a *setup) idle(ctx context.Context, o *options) (map[string]float64, error) {
	span := 5 * time.Second
	if o.quick {
		span = time.Second
	}
	before := map[*subject]usage{}
	for _, s := range a.subjects {
		u, err := s.used()
		if err != nil {
			return nil, err
		}
		before[s] = u
	}
	begin := time.Now()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(span):
	}
	out := map[string]float64{}
	for _, s := range a.subjects {
		u, err := s.used()
		if err != nil {
			return nil, err
		}
		if s.proc != nil {
			out[s.name] = us(u.cpu-before[s].cpu) / time.Since(begin).Seconds()
		}
	}
	return out, nil
}

// profile loads the router with each cell and writes where its CPU time goes.
func (a *setup) profile(ctx context.Context, o *options, list []cell) error {
	const span = 5 * time.Second
	for _, s := range a.subjects {
		if s.admin == "" {
			continue
		}
		for _, c := range list {
			shut := func() error {
				_, err := closed(ctx, &c, s.addr, c.Conns, max(4*c.Conns, c.Closed/10))
				return err
			}
			free := func() error {
				_, err := open(ctx, &c, s.addr, c.Most, int(c.Rate*span.Seconds()))
				return err
			}
			for name, load := range map[string]func() error{"": shut, "_open": free} {
				name = filepath.Join(o.out, s.name+"_"+c.Name+name+".pprof")
				done := make(chan error, 1)
				go func() {
					done <- fetch(ctx, fmt.Sprintf("%s/debug/pprof/profile?seconds=%d", s.admin, int(span.Seconds())), name)
				}()
				var err error
				for begin := time.Now(); time.Since(begin) < span && err == nil; {
					err = load()
				}
				if perr := <-done; err == nil {
					err = perr
				}
				if err != nil {
					return fmt.Errorf("profile of %s: %w", c.Name, err)
				}
				fmt.Fprintf(o.progress, "%s\n", name)
			}
		}
	}
	return nil
}

func fetch(ctx context.Context, url, file string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: status %d", url, resp.StatusCode)
	}
	return os.WriteFile(file, b, 0o644)
}

func us(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
