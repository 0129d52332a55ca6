package harness

// StartCommand starts a command that is neither router nor engine of a cluster, such as
// a server that routers talk to, in a group of its own. Its log is name.log in dir, to
// which one that is started again goes on writing.
func StartCommand(dir, name string, args ...string) (*Proc, error) {
	proc := &Proc{Name: name, args: args, command: true}
	if err := (&Procs{cfg: ProcsConfig{Dir: dir}}).start(proc); err != nil {
		return nil, err
	}
	return proc, nil
}
