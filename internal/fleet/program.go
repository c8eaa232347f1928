package fleet

import "context"

// StartProgram starts a program of another kind beside the workers, and waits
// until the address ready answers 200; an empty one is not waited for. It is
// stopped with the fleet. Kill and Restart work as for a worker.
func (f *Fleet) StartProgram(ctx context.Context, name, path, ready string, args ...string) (*Child, error) {
	c := &Child{Name: name, path: path, fleet: f, args: args, ready: ready}
	return c, f.launch(ctx, c)
}
