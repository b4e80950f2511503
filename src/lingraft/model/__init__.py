"""What a network is: its graph, its sites, grafted activations, surgery, and the networks of the paper."""
