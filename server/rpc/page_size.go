package rpc

import "fmt"

// PageSize returns the size of a page: the default for 0, and an error above the maximum.
func PageSize(asked uint32, standard, most int) (int, error) {
	switch {
	case asked == 0:
		return standard, nil
	case int64(asked) > int64(most):
		return 0, Invalid("pageSize", fmt.Sprintf("is %d, at most %d", asked, most))
	default:
		return int(asked), nil
	}
}
