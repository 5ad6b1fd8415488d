// All pieces.

import { defineWords } from "../base/words.js";
import { cachePiece } from "./cache_piece.js";
import { dotPiece } from "./dot_piece.js";
import { maskPiece } from "./mask_piece.js";
import { onlinePiece } from "./online_piece.js";
import { ropePiece } from "./rope_piece.js";
import { softmaxPiece } from "./softmax_piece.js";
import { trainingPiece } from "./training_piece.js";
import { words } from "./words.toml";

defineWords(words);

export const PIECES = [softmaxPiece, maskPiece, dotPiece, ropePiece, cachePiece, onlinePiece, trainingPiece];
