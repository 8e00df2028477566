# For Doxygen: comments as the headers have them become its own. Heads of files, and in C the comments before and behind a name.
1s|^// |/// \\file\n/// |
2,/^#/s|^//|///|
1s|^/\* |/** \\file\n * |
2,$s|^\( *\)/\* |\1/** |
2,$s|\([;,]\) */\* |\1 /**< |
