package command

import (
	"crypto/rand"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"runlog/engine/executor"
)

// idVariable marks the process and what it starts.
const idVariable = "RUNLOG_COMMAND_ID"

// environment returns the variables of a process, and writes the files of its secrets below temp.
func (e *Executor) environment(task executor.Task, in inputs, temp string) (env []string, id string, err error) {
	id = rand.Text()
	vars := map[string]string{}
	for _, name := range e.o.PassEnv {
		if value, ok := os.LookupEnv(name); ok {
			vars[name] = value
		}
	}
	maps.Copy(vars, in.Env)
	for name, ref := range in.SecretEnv {
		if vars[name], err = executor.Reveal(task, ref); err != nil {
			return nil, "", err
		}
		if strings.Contains(vars[name], "\x00") {
			return nil, "", executor.Fail(executor.CodeInputsInvalid, "the secret %s has a zero byte: hand it over in secretFiles", ref)
		}
	}
	for i, name := range slices.Sorted(maps.Keys(in.SecretFiles)) {
		vars[name] = filepath.Join(temp, "secret-"+strconv.Itoa(i))
		value, err := executor.Reveal(task, in.SecretFiles[name])
		if err != nil {
			return nil, "", err
		}
		if err := os.WriteFile(vars[name], []byte(value), 0o600); err != nil {
			return nil, "", executor.Retry(CodeNotStarted, "cannot write the file of a secret: %v: check TempDir", err)
		}
	}
	maps.Copy(vars, map[string]string{
		idVariable: id, "RUNLOG_RUN_ID": task.RunID, "RUNLOG_STEP_ID": task.StepID,
		"RUNLOG_LOGICAL_ATTEMPT": strconv.FormatUint(uint64(task.LogicalAttempt), 10),
		"RUNLOG_ENGINE_ATTEMPT":  strconv.FormatUint(uint64(task.EngineAttempt), 10),
	})
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(vars[name], "\x00") {
			return nil, "", executor.Fail(executor.CodeInputsInvalid, "the variable %.100q has a zero byte, or its name is none", name)
		}
		env = append(env, name+"="+vars[name])
	}
	return env, id, nil
}
